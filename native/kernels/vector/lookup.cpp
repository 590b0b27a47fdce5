// The image to planes of codes, for images of three channels.
#include "kernels/isa/simd.h"
#include "kernels/ranges.h"
#include "ops/specs.h"

namespace dbq::vec {
namespace {

class Lookup final : public Op {
public:
    Lookup(const LookupSpec& spec, const Simd& simd, int threads)
        : simd_(simd), spec_(spec), parts_(parts_for(spec.shape.height, threads)) {}

    int tasks() const override { return parts_; }
    size_t weight_bytes() const override { return spec_.table.size(); }

    void run(int task, const Planes* in, const Planes* out, unsigned char*) const override {
        const Range rows = part(spec_.shape.height, parts_, task);
        const size_t width = size_t(spec_.shape.width), end = size_t(rows.end) * width;
        const unsigned char* const image = in[0].plane[0];
        const uint8_t* const tables = spec_.table.data();
        const size_t begin = simd_.lookup_three(image, tables, size_t(rows.begin) * width, end, out[0].plane);
        for (size_t c = 0; c < 3; ++c)
            for (size_t p = begin; p < end; ++p) out[0].plane[c][p] = tables[256 * c + image[p * 3 + c]];
    }

private:
    const Simd& simd_;
    const LookupSpec spec_;
    const int parts_;
};

}  // namespace

std::unique_ptr<Op> make_lookup(const LookupSpec& spec, const Simd* simd, int threads) {
    return std::make_unique<Lookup>(spec, *simd, threads);
}

}  // namespace dbq::vec
