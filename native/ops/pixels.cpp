// Rows and columns at other places: crops, flips, padding, nearest neighbours. Type and scale stay.
#include "file/parser.h"
#include "ops/loops.h"

namespace dbq {

static std::vector<uint16_t> read_places(Parser& in, const char* what, int count, int size) {
    std::vector<uint16_t> places;
    for (Reader part(in.bytes.bytes(uint64_t(count) * 2)); part.left() > 0;) {
        places.push_back(part.u16());
        if (places.back() != NOTHING) in_range(what, places.back(), 0, uint32_t(size - 1));
    }
    return places;
}

void read_pixels(Parser& in, Operation& op) {
    const Tensor& from = in.input(op, Type::I32);
    const Tensor& out = in.output(op);
    check_same_channels("the output", out.shape, from.shape);
    check_same_meaning(out, from);
    PixelsSpec spec{from.shape, out.shape, from.type, {}, {}};
    spec.rows = read_places(in, "row of the input", out.shape.height, from.shape.height);
    spec.columns = read_places(in, "column of the input", out.shape.width, from.shape.width);
    in.largest(op.outputs[0]) = in.largest(op.inputs[0]);
    op.build = builder(std::move(spec));
}

namespace scalar {

static void pixels(const PixelsSpec& s, Range channels, const Planes* in, const Planes* out) {
    for_elements(s.out, channels, [&](int k, int y, int x) {
        const uint16_t row = s.rows[size_t(y)], column = s.columns[size_t(x)];
        const bool nothing = row == NOTHING || column == NOTHING;
        const int32_t code = nothing ? 0 : read_code(s.type, in[0].plane[k], s.in.pixel(row, column));
        write_code(s.type, out[0].plane[k], s.out.pixel(y, x), code);
    });
}

std::unique_ptr<Op> make_pixels(const PixelsSpec& spec, const Simd*, int threads) {
    return make_loops(spec, pixels, spec.out.channels, threads);
}

}  // namespace scalar
}  // namespace dbq
