// Images of another size: every pixel is a mixture of four.
#include "file/parser.h"
#include "ops/loops.h"

namespace dbq {

static std::vector<Blend> read_blends(Parser& in, const char* what, int count, int size) {
    std::vector<Blend> blends;
    for (Reader part(in.bytes.bytes(uint64_t(count) * 8)); part.left() > 0;) {
        Blend blend;
        blend.first = part.u16();
        blend.second = part.u16();
        blend.share = part.f32();
        in_range(what, blend.first, 0, uint32_t(size - 1));
        in_range(what, blend.second, 0, uint32_t(size - 1));
        if (!(blend.share >= 0 && blend.share <= 1))
            fail(DBQ_BAD_FILE, "a share of %g, expected 0 to 1", double(blend.share));
        blends.push_back(blend);
    }
    return blends;
}

void read_bilinear(Parser& in, Operation& op) {
    BilinearSpec spec;
    const Tensor& from = in.input(op, Type::I32);
    spec.in = from.shape;
    spec.in_type = from.type;
    spec.outputs = in.results(op, 1);
    spec.out = in.tensor(op.outputs[0]).shape;
    check_same_channels("the output", spec.out, spec.in);
    spec.rows = read_blends(in, "row of the input", spec.out.height, spec.in.height);
    spec.columns = read_blends(in, "column of the input", spec.out.width, spec.in.width);
    op.work = 3 * uint64_t(spec.out.channels) * spec.out.pixels();  // mixtures
    op.build = builder(std::move(spec));
}

namespace scalar {

static void bilinear(const BilinearSpec& s, Range channels, const Planes* in, const Planes* out) {
    write_values(s.outputs, s.out, channels, out, [&](int k, int y, int x) {
        const Blend &row = s.rows[size_t(y)], &column = s.columns[size_t(x)];
        const auto code = [&](int from_y, int from_x) {
            return float(read_code(s.in_type, in[0].plane[k], s.in.pixel(from_y, from_x)));
        };
        const float a = column.mix(code(row.first, column.first), code(row.first, column.second));
        const float b = column.mix(code(row.second, column.first), code(row.second, column.second));
        return row.mix(a, b);
    });
}

std::unique_ptr<Op> make_bilinear(const BilinearSpec& spec, const Simd*, int threads) {
    return make_loops(spec, bilinear, spec.out.channels, threads);
}

}  // namespace scalar
}  // namespace dbq
