// Concatenation, splitting and shuffling: each channel is a channel of another tensor, or zeros. Nothing
// runs; the layout of the arena makes the output's planes those of its sources.
#include <algorithm>

#include "file/parser.h"

namespace dbq {

void read_channels(Parser& in, Operation& op) {
    const Tensor& out = in.output(op);
    if (out.type == Type::F32) fail(DBQ_BAD_FILE, "channels of type f32, expected integers");
    bool zeros = true;
    for (Reader pairs(in.bytes.bytes(uint64_t(out.shape.channels) * 8)); pairs.left() > 0;) {
        Source source;
        source.tensor = pairs.u32();
        source.channel = pairs.u32();
        op.sources.push_back(source);
        if (source.tensor == ZEROS) continue;
        zeros = false;
        const Tensor& from = in.readable(source.tensor, Type::I32);
        in_range("channel", source.channel, 0, uint32_t(from.shape.channels - 1));
        check_same_size("a channel", from.shape, out.shape);
        check_same_meaning(out, from);
        int32_t& largest = in.largest(op.outputs[0]);
        largest = std::max(largest, in.largest(source.tensor));
    }
    if (zeros) fail(DBQ_BAD_FILE, "nothing but zeros, expected a channel of some tensor");
}

}  // namespace dbq
