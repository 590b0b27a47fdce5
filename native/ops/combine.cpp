// Additions and requantizations: two planes or one through the formula, pixel by pixel.
#include "file/parser.h"
#include "kernels/formula.h"
#include "kernels/ranges.h"

namespace dbq {

void read_add(Parser& in, Operation& op) {
    CombineSpec spec;
    const Tensor &a = in.input(op, Type::I32), &b = in.input(op, Type::I32);
    check_same_shape("the second summand", b.shape, a.shape);
    spec.shape = a.shape;
    spec.in_types = {a.type, b.type};
    spec.outputs = in.results(op, 2);
    check_same_shape("the sum", in.tensor(op.outputs[0]).shape, spec.shape);
    op.build = builder(std::move(spec));
}

void read_requantize(Parser& in, Operation& op) {
    CombineSpec spec;
    const Tensor& from = in.input(op, Type::I32);
    spec.shape = from.shape;
    spec.in_types = {from.type};
    spec.outputs = in.results(op, 1);
    check_same_shape("the output", in.tensor(op.outputs[0]).shape, spec.shape);
    op.build = builder(std::move(spec));
}

namespace scalar {
namespace {

class Combine final : public Op {
public:
    Combine(const CombineSpec& spec, int threads)
        : spec_(spec), parts_(parts_for(spec.shape.channels, threads)) {}

    int tasks() const override { return parts_; }

    void run(int task, const Planes* in, const Planes* out, unsigned char*) const override {
        const Range channels = part(spec_.shape.channels, parts_, task);
        const size_t inputs = spec_.in_types.size();
        for (int k = channels.begin; k < channels.end; ++k)
            for (size_t pixel = 0; pixel < spec_.shape.pixels(); ++pixel) {
                int32_t codes[2] = {};
                for (size_t i = 0; i < inputs; ++i)
                    codes[i] = read_code(spec_.in_types[i], in[i].plane[k], pixel);
                for (size_t o = 0; o < spec_.outputs.size(); ++o)
                    write_element(spec_.outputs[o], codes, int(inputs), k, out[o].plane[k], pixel);
            }
    }

private:
    const CombineSpec spec_;
    const int parts_;
};

}  // namespace

std::unique_ptr<Op> make_combine(const CombineSpec& spec, const Simd*, int threads) {
    return std::make_unique<Combine>(spec, threads);
}

}  // namespace scalar
}  // namespace dbq
