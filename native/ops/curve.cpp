// Curves: functions of straight segments, such as sigmoids and what is made of them.
#include "file/parser.h"
#include "ops/loops.h"

namespace dbq {

constexpr uint32_t MAX_SEGMENTS = 4096;
constexpr float LARGEST_KNOT = 1 << 29;
constexpr double LARGEST_INPUT = 1 << 30;

void read_curve(Parser& in, Operation& op) {
    CurveSpec spec;
    const Tensor& from = in.input(op, Type::I32);
    spec.shape = from.shape;
    spec.in_type = from.type;
    spec.scale = from.scale;
    const double largest = in.largest(op.inputs[0]) * double(from.scale);
    if (!(largest <= LARGEST_INPUT))
        fail(DBQ_BAD_FILE, "values up to %g, expected at most %g", largest, LARGEST_INPUT);
    spec.times_x = in_range("form of the curve", in.bytes.u8(), 0, 1) == 1;
    spec.low = in.bytes.f32();
    spec.high = in.bytes.f32();
    check_float("low end of the curve", spec.low);
    check_float("high end of the curve", spec.high);
    if (!(spec.low < spec.high))
        fail(DBQ_BAD_FILE, "a curve from %g to %g", double(spec.low), double(spec.high));
    const uint32_t segments = in_range("segments", in.bytes.u16(), 1, MAX_SEGMENTS);
    spec.density = float(segments) / (spec.high - spec.low);
    check_float("segments for each unit", spec.density);
    spec.knots = in.bytes.floats(segments + 1);
    for (const float knot : spec.knots)
        if (!(std::fabs(knot) <= LARGEST_KNOT))
            fail(DBQ_BAD_FILE, "a knot of %g, expected at most %g in size", double(knot),
                 double(LARGEST_KNOT));
    spec.outputs = in.results(op, 1);
    check_same_shape("the output", in.tensor(op.outputs[0]).shape, spec.shape);
    op.build = builder(std::move(spec));
}

namespace scalar {

static float value(const CurveSpec& s, int32_t code) {
    const float x = float(code) * s.scale;
    const float u = x < s.low ? s.low : x > s.high ? s.high : x;
    const float p = (u - s.low) * s.density;
    const int i = std::min(int(p), s.segments() - 1);  // p >= 0: this is floor(p)
    const float f = p - float(i);
    const float* knot = s.knots.data() + i;
    const float step = knot[1] - knot[0];
    const float g = knot[0] + f * step;
    return s.times_x ? x * g : g;
}

static void curve(const CurveSpec& s, Range channels, const Planes* in, const Planes* out) {
    write_values(s.outputs, s.shape, channels, out, [&](int k, int y, int x) {
        return value(s, read_code(s.in_type, in[0].plane[k], s.shape.pixel(y, x)));
    });
}

std::unique_ptr<Op> make_curve(const CurveSpec& spec, const Simd*, int threads) {
    return make_loops(spec, curve, spec.shape.channels, threads, spec.knots.size() * sizeof(float));
}

}  // namespace scalar
}  // namespace dbq
