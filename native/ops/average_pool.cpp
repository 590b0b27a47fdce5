// Average pools: the sum over a window, through the formula.
#include "file/parser.h"
#include "kernels/formula.h"
#include "kernels/ranges.h"
#include "ops/window.h"

namespace dbq {

void read_average_pool(Parser& in, Operation& op) {
    AveragePoolSpec spec;
    const Tensor& from = in.input(op, Type::I32);
    spec.in = from.shape;
    spec.in_type = from.type;
    spec.window = in.window();
    check_window_sum(spec.window, in.largest(op.inputs[0]));
    spec.outputs = in.results(op, 1);
    spec.out = in.tensor(op.outputs[0]).shape;
    check_same_channels("the output", spec.out, spec.in);
    check_overlap(spec.window, spec.in, spec.out);
    op.build = builder(std::move(spec));
}

namespace scalar {
namespace {

class AveragePool final : public Op {
public:
    AveragePool(const AveragePoolSpec& spec, int threads)
        : spec_(spec), parts_(parts_for(spec.out.channels, threads)) {}

    int tasks() const override { return parts_; }

    void run(int task, const Planes* in, const Planes* out, unsigned char*) const override {
        const Range channels = part(spec_.out.channels, parts_, task);
        for (int k = channels.begin; k < channels.end; ++k)
            for (int y = 0; y < spec_.out.height; ++y)
                for (int x = 0; x < spec_.out.width; ++x) {
                    int32_t sum = 0;
                    for_window(spec_.window, spec_.in, y, x,
                               [&](size_t pixel) { sum += read_code(spec_.in_type, in[0].plane[k], pixel); });
                    const size_t pixel = size_t(y) * size_t(spec_.out.width) + size_t(x);
                    for (size_t o = 0; o < spec_.outputs.size(); ++o)
                        write_element(spec_.outputs[o], &sum, 1, k, out[o].plane[k], pixel);
                }
    }

private:
    const AveragePoolSpec spec_;
    const int parts_;
};

}  // namespace

std::unique_ptr<Op> make_average_pool(const AveragePoolSpec& spec, const Simd*, int threads) {
    return std::make_unique<AveragePool>(spec, threads);
}

}  // namespace scalar
}  // namespace dbq
