// Additions and requantizations: one or two planes through the formula.
#include "kernels/ranges.h"
#include "kernels/vector/outputs.h"
#include "ops/specs.h"

namespace dbq::vec {
namespace {

class Combine final : public Op {
public:
    Combine(const CombineSpec& spec, const Simd& simd, int threads)
        : simd_(simd), shape_(spec.shape), types_(spec.in_types),
          outputs_(spec.outputs, int(types_.size()), 1 << 30), parts_(parts_for(shape_.channels, threads)) {}

    int tasks() const override { return parts_; }
    void run(int task, const Planes* in, const Planes* out, unsigned char*) const override {
        const Range channels = part(shape_.channels, parts_, task);
        for (int k = channels.begin; k < channels.end; ++k) {
            const unsigned char* planes[2] = {in[0].plane[k], types_.size() == 2 ? in[1].plane[k] : nullptr};
            for (size_t o = 0; o < outputs_.size(); ++o) {
                Finish finish;
                outputs_.describe(o, k, out, finish);
                simd_.combine(planes, types_.data(), shape_.pixels(), finish);
            }
        }
    }

private:
    const Simd& simd_;
    const Shape shape_;
    const std::vector<Type> types_;
    const Outputs outputs_;
    const int parts_;
};

}  // namespace

std::unique_ptr<Op> make_combine(const CombineSpec& spec, const Simd* simd, int threads) {
    return std::make_unique<Combine>(spec, *simd, threads);
}

}  // namespace dbq::vec
