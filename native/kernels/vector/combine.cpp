// Additions and requantizations: one or two planes through the formula.
#include "kernels/vector/outputs.h"
#include "threads/stop.h"

namespace dbq::vec {
namespace {

class Combine final : public RangeOp {
public:
    Combine(const CombineSpec& spec, const Simd& simd, int threads)
        : RangeOp(spec.shape.channels, threads), simd_(simd), shape_(spec.shape), types_(spec.in_types),
          outputs_(spec.outputs, int(types_.size()), 1 << 30) {}

private:
    void run_on(Range channels, const Planes* in, const Planes* out, unsigned char*) const override {
        for (int k = channels.begin; k < channels.end && !stopped(); ++k) {
            const unsigned char* planes[2] = {in[0].plane[k], types_.size() == 2 ? in[1].plane[k] : nullptr};
            for (size_t o = 0; o < outputs_.size(); ++o) {
                Finish finish;
                outputs_.describe(o, k, out, finish);
                simd_.combine(planes, types_.data(), shape_.pixels(), finish);
            }
        }
    }

    const Simd& simd_;
    const Shape shape_;
    const std::vector<Type> types_;
    const Outputs outputs_;
};

}  // namespace

std::unique_ptr<Op> make_combine(const CombineSpec& spec, const Simd* simd, int threads) {
    return std::make_unique<Combine>(spec, *simd, threads);
}

}  // namespace dbq::vec
