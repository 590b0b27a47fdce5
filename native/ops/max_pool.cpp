// Max pools: the largest code of a window. Type and scale stay.
#include <limits>

#include "file/parser.h"
#include "kernels/ranges.h"
#include "ops/window.h"

namespace dbq {

void read_max_pool(Parser& in, Operation& op) {
    const Tensor& from = in.input(op, Type::I32);
    const Window window = in.window();
    const Tensor& out = in.output(op);
    check_same_channels("the output", out.shape, from.shape);
    check_same_meaning(out, from);
    check_overlap(window, from.shape, out.shape);
    in.largest(op.outputs[0]) = in.largest(op.inputs[0]);
    op.build = builder(MaxPoolSpec{from.shape, out.shape, from.type, window});
}

namespace scalar {
namespace {

template <class T>
class MaxPool final : public Op {
public:
    MaxPool(const MaxPoolSpec& spec, int threads)
        : spec_(spec), parts_(parts_for(spec.out.channels, threads)) {}

    int tasks() const override { return parts_; }

    void run(int task, const Planes* in, const Planes* out, unsigned char*) const override {
        const Range channels = part(spec_.out.channels, parts_, task);
        for (int k = channels.begin; k < channels.end; ++k) {
            const T* from = reinterpret_cast<const T*>(in[0].plane[k]);
            T* to = reinterpret_cast<T*>(out[0].plane[k]);
            for (int y = 0; y < spec_.out.height; ++y)
                for (int x = 0; x < spec_.out.width; ++x) {
                    T largest = std::numeric_limits<T>::lowest();
                    for_window(spec_.window, spec_.in, y, x,
                               [&](size_t pixel) { largest = std::max(largest, from[pixel]); });
                    *to++ = largest;
                }
        }
    }

private:
    const MaxPoolSpec spec_;
    const int parts_;
};

}  // namespace

std::unique_ptr<Op> make_max_pool(const MaxPoolSpec& spec, const Simd*, int threads) {
    if (spec.type == Type::U8) return std::make_unique<MaxPool<uint8_t>>(spec, threads);
    if (spec.type == Type::I8) return std::make_unique<MaxPool<int8_t>>(spec, threads);
    return std::make_unique<MaxPool<int32_t>>(spec, threads);
}

}  // namespace scalar
}  // namespace dbq
