// Products of two tensors, or of one and a factor for each channel or each pixel.
#include "file/parser.h"
#include "ops/loops.h"

namespace dbq {

void read_multiply(Parser& in, Operation& op) {
    MultiplySpec spec;
    const Tensor& a = in.input(op, Type::I32);
    const Tensor& b = in.input(op, Type::I32);
    spec.shape = a.shape;
    spec.factor = b.shape;
    spec.types[0] = a.type;
    spec.types[1] = b.type;
    const bool same_channels = b.shape.channels == a.shape.channels;
    const bool same_size = b.shape.height == a.shape.height && b.shape.width == a.shape.width;
    if (!(same_channels && (same_size || b.shape.pixels() == 1)) && !(same_size && b.shape.channels == 1))
        fail(DBQ_BAD_FILE, "%dx%dx%d times %dx%dx%d elements", a.shape.channels, a.shape.height,
             a.shape.width, b.shape.channels, b.shape.height, b.shape.width);
    spec.outputs = in.results(op, 1);
    check_same_shape("the output", in.tensor(op.outputs[0]).shape, spec.shape);
    op.build = builder(std::move(spec));
}

namespace scalar {

static void multiply(const MultiplySpec& s, Range channels, const Planes* in, const Planes* out) {
    write_values(s.outputs, s.shape, channels, out, [&](int k, int y, int x) {
        const size_t pixel = s.shape.pixel(y, x), factor = s.factor.pixels() == 1 ? 0 : pixel;
        const float a = float(read_code(s.types[0], in[0].plane[k], pixel));
        return a * float(read_code(s.types[1], in[1].plane[s.channel(k)], factor));
    });
}

std::unique_ptr<Op> make_multiply(const MultiplySpec& spec, const Simd*, int threads) {
    return make_loops(spec, multiply, spec.shape.channels, threads);
}

}  // namespace scalar
}  // namespace dbq
