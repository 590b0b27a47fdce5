// Additions and requantizations: one or two planes through the formula.
#include "kernels/vector/outputs.h"
#include "threads/stop.h"

namespace dbq::vec {
namespace {

class Combine final : public PixelOp {
public:
    Combine(const CombineSpec& spec, const Simd& simd, int threads)
        : PixelOp(spec.shape, threads), simd_(simd), types_(spec.in_types),
          outputs_(spec.outputs, int(types_.size()), 1 << 30) {}

private:
    void run_on(const Tile& tile, const Planes* in, const Planes* out, unsigned char*) const override {
        const size_t pixel = size_t(tile.pixels.begin), pixels = size_t(tile.pixels.size());
        for (int k = tile.channels.begin; k < tile.channels.end && !stopped(); ++k) {
            const unsigned char* planes[2] = {};
            for (size_t i = 0; i < types_.size(); ++i)
                planes[i] = in[i].plane[k] + pixel * size_of(types_[i]);
            for (size_t o = 0; o < outputs_.size(); ++o) {
                Finish finish;
                outputs_.describe(o, k, out, finish);
                unsigned char* const to = *finish.out + pixel * size_of(finish.type);
                finish.out = &to;
                simd_.combine(planes, types_.data(), pixels, finish);
            }
        }
    }

    const Simd& simd_;
    const std::vector<Type> types_;
    const Outputs outputs_;
};

}  // namespace

std::unique_ptr<Op> make_combine(const CombineSpec& spec, const Simd* simd, int threads) {
    return std::make_unique<Combine>(spec, *simd, threads);
}

}  // namespace dbq::vec
