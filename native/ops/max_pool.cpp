// Max pools: the largest code of a window. Type and scale stay.
#include "file/parser.h"
#include "ops/loops.h"

namespace dbq {

void read_max_pool(Parser& in, Operation& op) {
    const Tensor& from = in.input(op, Type::I32);
    const Window window = in.window();
    const Tensor& out = in.output(op);
    check_same_channels("the output", out.shape, from.shape);
    check_same_meaning(out, from);
    check_overlap(window, from.shape, out.shape);
    in.largest(op.outputs[0]) = in.largest(op.inputs[0]);
    op.work = window_work(window, out.shape);
    op.build = builder(MaxPoolSpec{from.shape, out.shape, from.type, window});
}

namespace scalar {

static void max_pool(const MaxPoolSpec& s, Range channels, const Planes* in, const Planes* out) {
    const int32_t least = s.type == Type::U8 ? 0 : s.type == Type::I8 ? INT8_MIN : INT32_MIN;
    for_elements(s.out, channels, [&](int k, int y, int x) {
        int32_t largest = least;
        for_window(s.window, s.in, y, x, [&](size_t pixel) {
            largest = std::max(largest, read_code(s.type, in[0].plane[k], pixel));
        });
        write_code(s.type, out[0].plane[k], s.out.pixel(y, x), largest);
    });
}

std::unique_ptr<Op> make_max_pool(const MaxPoolSpec& spec, const Simd*, int threads) {
    return make_loops(spec, max_pool, spec.out.channels, threads);
}

}  // namespace scalar
}  // namespace dbq
