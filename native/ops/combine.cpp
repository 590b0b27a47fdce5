// Additions and requantizations: two planes or one through the formula, pixel by pixel.
#include "file/parser.h"
#include "ops/loops.h"

namespace dbq {

static void read_combination(Parser& in, Operation& op, uint32_t inputs) {
    CombineSpec spec;
    for (uint32_t i = 0; i < inputs; ++i) {
        const Tensor& from = in.input(op, Type::I32);
        spec.in_types.push_back(from.type);
        spec.shape = in.tensor(op.inputs[0]).shape;
        check_same_shape("the second summand", from.shape, spec.shape);
    }
    spec.outputs = in.results(op, inputs);
    check_same_shape("the output", in.tensor(op.outputs[0]).shape, spec.shape);
    op.build = builder(std::move(spec));
}

void read_add(Parser& in, Operation& op) { read_combination(in, op, 2); }
void read_requantize(Parser& in, Operation& op) { read_combination(in, op, 1); }

namespace scalar {

static void combine(const CombineSpec& s, Range channels, const Planes* in, const Planes* out) {
    const size_t inputs = s.in_types.size();
    write_elements(s.outputs, int(inputs), s.shape, channels, out, [&](int k, int y, int x, int32_t* codes) {
        for (size_t i = 0; i < inputs; ++i)
            codes[i] = read_code(s.in_types[i], in[i].plane[k], s.shape.pixel(y, x));
    });
}

std::unique_ptr<Op> make_combine(const CombineSpec& spec, const Simd*, int threads) {
    return make_loops(spec, combine, spec.shape.channels, threads);
}

}  // namespace scalar
}  // namespace dbq
