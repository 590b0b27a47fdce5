// Average pools: the sum over a window, or the mean of its pixels inside the image, through the formula.
#include "file/parser.h"
#include "ops/loops.h"

namespace dbq {

static void read_pool(Parser& in, Operation& op, bool is_mean) {
    AveragePoolSpec spec;
    spec.is_mean = is_mean;
    const Tensor& from = in.input(op, Type::I32);
    spec.in = from.shape;
    spec.in_type = from.type;
    spec.window = in.window();
    check_window_sum(spec.window, in.largest(op.inputs[0]));
    spec.outputs = in.results(op, 1);
    spec.out = in.tensor(op.outputs[0]).shape;
    check_same_channels("the output", spec.out, spec.in);
    check_overlap(spec.window, spec.in, spec.out);
    op.work = window_work(spec.window, spec.out);
    op.build = builder(std::move(spec));
}

void read_average_pool(Parser& in, Operation& op) { read_pool(in, op, false); }
void read_mean_pool(Parser& in, Operation& op) { read_pool(in, op, true); }

namespace scalar {

static void mean_pool(const AveragePoolSpec& s, Range channels, const Planes* in, const Planes* out) {
    write_values(s.outputs, s.out, channels, out, [&](int k, int y, int x) {
        int32_t sum = 0, count = 0;
        for_window(s.window, s.in, y, x, [&](size_t pixel) {
            sum += read_code(s.in_type, in[0].plane[k], pixel);
            ++count;
        });
        return float(sum) / float(count);
    });
}

static void average_pool(const AveragePoolSpec& s, Range channels, const Planes* in, const Planes* out) {
    if (s.is_mean) return mean_pool(s, channels, in, out);
    write_elements(s.outputs, 1, s.out, channels, out, [&](int k, int y, int x, int32_t* sum) {
        for_window(s.window, s.in, y, x,
                   [&](size_t pixel) { *sum += read_code(s.in_type, in[0].plane[k], pixel); });
    });
}

std::unique_ptr<Op> make_average_pool(const AveragePoolSpec& spec, const Simd*, int threads) {
    return make_loops(spec, average_pool, spec.out.channels, threads);
}

}  // namespace scalar
}  // namespace dbq
