// The image to planes of codes, in vectors if it has three channels.
#include "kernels/ranges.h"
#include "kernels/vector/vector_ops.h"

namespace dbq {
namespace {

class Lookup final : public Op {
public:
    Lookup(const LookupSpec& spec, const Simd& simd, int threads)
        : simd_(simd), spec_(spec), parts_(parts_for(spec.shape.height, threads)) {}

    int tasks() const override { return parts_; }
    size_t scratch_bytes() const override { return 0; }
    std::string kernel() const override { return std::string("lookup ") + simd_.name; }
    size_t weight_bytes() const override { return spec_.table.size(); }

    void run(int task, const Planes* in, const Planes* out, unsigned char*) const override {
        const Range rows = part(spec_.shape.height, parts_, task);
        const size_t channels = size_t(spec_.shape.channels), width = size_t(spec_.shape.width);
        const size_t end = size_t(rows.end) * width;
        size_t begin = size_t(rows.begin) * width;
        const unsigned char* const image = in[0].plane[0];
        if (channels == 3) begin = simd_.lookup_three(image, spec_.table.data(), begin, end, out[0].plane);
        for (size_t c = 0; c < channels; ++c)
            for (size_t p = begin; p < end; ++p)
                out[0].plane[c][p] = spec_.table[256 * c + image[p * channels + c]];
    }

private:
    const Simd& simd_;
    const LookupSpec spec_;
    const int parts_;
};

}  // namespace

std::unique_ptr<Op> make_lookup(const LookupSpec& spec, const Simd& simd, int threads) {
    return std::make_unique<Lookup>(spec, simd, threads);
}

}  // namespace dbq
