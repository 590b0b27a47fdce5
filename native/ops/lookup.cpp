// The first operation: the bytes of the image to codes, through one table for each channel.
#include "file/parser.h"
#include "kernels/ranges.h"

namespace dbq {

void read_lookup(Parser& in, Operation& op) {
    const Tensor& out = in.output(op);
    if (out.type > Type::I8) fail(DBQ_BAD_FILE, "the table's tensor is not of type u8 or i8");
    in.largest(op.outputs[0]) = 255;
    const Bytes table = in.bytes.bytes(uint64_t(out.shape.channels) * 256);
    op.build = builder(LookupSpec{out.shape, out.type, {table.data, table.data + table.size}});
}

namespace scalar {
namespace {

class Lookup final : public Op {
public:
    Lookup(const LookupSpec& spec, int threads)
        : spec_(spec), parts_(parts_for(spec.shape.height, threads)) {}

    int tasks() const override { return parts_; }
    size_t weight_bytes() const override { return spec_.table.size(); }

    void run(int task, const Planes* in, const Planes* out, unsigned char*) const override {
        const Range rows = part(spec_.shape.height, parts_, task);
        const size_t channels = size_t(spec_.shape.channels), width = size_t(spec_.shape.width);
        for (size_t c = 0; c < channels; ++c) {
            const uint8_t* table = spec_.table.data() + 256 * c;
            const unsigned char* image = in[0].plane[0] + c;
            unsigned char* plane = out[0].plane[c];
            for (size_t p = size_t(rows.begin) * width; p < size_t(rows.end) * width; ++p)
                plane[p] = table[image[p * channels]];
        }
    }

private:
    const LookupSpec spec_;
    const int parts_;
};

}  // namespace

std::unique_ptr<Op> make_lookup(const LookupSpec& spec, const Simd*, int threads) {
    return std::make_unique<Lookup>(spec, threads);
}

}  // namespace scalar
}  // namespace dbq
