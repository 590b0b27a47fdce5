// The image to planes of codes, for images of three channels.
#include "kernels/isa/simd.h"
#include "kernels/ranges.h"
#include "ops/specs.h"

namespace dbq::vec {
namespace {

class Lookup final : public RangeOp {
public:
    Lookup(const LookupSpec& spec, const Simd& simd, int threads)
        : RangeOp(spec.shape.height, threads), simd_(simd), spec_(spec) {}

    size_t weight_bytes() const override { return spec_.table.size(); }

private:
    void run_on(Range lines, const Planes* in, const Planes* out, unsigned char*) const override {
        const unsigned char* const image = in[0].plane[0];
        const uint8_t* const tables = spec_.table.data();
        const size_t first = spec_.shape.pixel(lines.begin, 0), end = spec_.shape.pixel(lines.end, 0);
        const size_t begin = simd_.lookup_three(image, tables, first, end, out[0].plane);
        for (size_t c = 0; c < 3; ++c)
            for (size_t p = begin; p < end; ++p) out[0].plane[c][p] = tables[256 * c + image[p * 3 + c]];
    }

    const Simd& simd_;
    const LookupSpec spec_;
};

}  // namespace

std::unique_ptr<Op> make_lookup(const LookupSpec& spec, const Simd* simd, int threads) {
    return std::make_unique<Lookup>(spec, *simd, threads);
}

}  // namespace dbq::vec
