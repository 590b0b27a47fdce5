// Additions and requantizations: one or two planes through the formula.
#include <algorithm>

#include "kernels/vector/outputs.h"
#include "threads/stop.h"

namespace dbq::vec {
namespace {

// Small planes that follow each other and have the same scales are computed like one, of up to so many
// pixels: a call takes as long as 60 pixels, and what it reads shall stay in the L1 cache for the next
// output.
constexpr size_t MOST_PIXELS = 2048;

class Combine final : public PixelOp {
public:
    Combine(const CombineSpec& spec, const Simd& simd, int threads)
        : PixelOp(spec.shape, threads), simd_(simd), types_(spec.in_types),
          outputs_(spec.outputs, int(types_.size()), 1 << 30), pixels_(spec.shape.pixels()) {
        for (const Output& output : spec.outputs) {
            out_types_.push_back(output.type);
            const size_t scales = types_.size();
            has_equal_scales_ &=
                std::equal(output.scale.begin() + ptrdiff_t(scales), output.scale.end(),
                           output.scale.begin()) &&
                std::equal(output.offset.begin() + 1, output.offset.end(), output.offset.begin());
        }
    }

private:
    // Whether planes k and k + 1 are one plane of twice the length, for all inputs and outputs.
    bool continues(int k, const Planes* in, const Planes* out) const {
        const auto follows = [&](const Planes& planes, Type type) {
            return planes.plane[k] + pixels_ * size_of(type) == planes.plane[k + 1];
        };
        for (size_t i = 0; i < types_.size(); ++i)
            if (!follows(in[i], types_[i])) return false;
        for (size_t o = 0; o < out_types_.size(); ++o)
            if (!follows(out[o], out_types_[o])) return false;
        return true;
    }

    void run_on(const Tile& tile, const Planes* in, const Planes* out, unsigned char*) const override {
        const size_t pixel = size_t(tile.pixels.begin), pixels = size_t(tile.pixels.size());
        const bool joins = has_equal_scales_ && pixels == pixels_;
        for (int k = tile.channels.begin, next; k < tile.channels.end && !stopped(); k = next) {
            size_t together = pixels;
            for (next = k + 1; joins && next < tile.channels.end && together + pixels <= MOST_PIXELS &&
                               continues(next - 1, in, out);
                 ++next)
                together += pixels;
            const unsigned char* planes[2] = {};
            for (size_t i = 0; i < types_.size(); ++i)
                planes[i] = in[i].plane[k] + pixel * size_of(types_[i]);
            for (size_t o = 0; o < outputs_.size(); ++o) {
                Finish finish;
                outputs_.describe(o, k, out, finish);
                unsigned char* const to = *finish.out + pixel * size_of(finish.type);
                finish.out = &to;
                simd_.combine(planes, types_.data(), together, finish);
            }
        }
    }

    const Simd& simd_;
    const std::vector<Type> types_;
    const Outputs outputs_;
    const size_t pixels_;
    std::vector<Type> out_types_;
    bool has_equal_scales_ = true;  // in all channels
};

}  // namespace

std::unique_ptr<Op> make_combine(const CombineSpec& spec, const Simd* simd, int threads) {
    return std::make_unique<Combine>(spec, *simd, threads);
}

}  // namespace dbq::vec
