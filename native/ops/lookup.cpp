// The first operation: the bytes of the image to codes, through one table for each channel.
#include "file/parser.h"
#include "ops/loops.h"

namespace dbq {

void read_lookup(Parser& in, Operation& op) {
    const Tensor& out = in.output(op);
    if (out.type > Type::I8) fail(DBQ_BAD_FILE, "the table's tensor is not of type u8 or i8");
    in.largest(op.outputs[0]) = 255;
    const Bytes table = in.bytes.bytes(uint64_t(out.shape.channels) * 256);
    op.build = builder(LookupSpec{out.shape, out.type, {table.data, table.data + table.size}});
}

namespace scalar {

static void lookup(const LookupSpec& s, Range lines, const Planes* in, const Planes* out) {
    const size_t channels = size_t(s.shape.channels);
    for (size_t c = 0; c < channels; ++c) {
        const uint8_t* table = s.table.data() + 256 * c;
        const unsigned char* image = in[0].plane[0] + c;
        for (size_t p = s.shape.pixel(lines.begin, 0); p < s.shape.pixel(lines.end, 0); ++p)
            out[0].plane[c][p] = table[image[p * channels]];
    }
}

std::unique_ptr<Op> make_lookup(const LookupSpec& spec, const Simd*, int threads) {
    return make_loops(spec, lookup, spec.shape.height, threads, spec.table.size());
}

}  // namespace scalar
}  // namespace dbq
