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

// Line by line; a line that repeats the one above is copied.
template <class T>
static void pixels_of(const PixelsSpec& s, Range channels, const Planes* in, const Planes* out) {
    const size_t width = size_t(s.out.width);
    bool is_half = true;  // every second column, as in shortcuts of residual networks
    for (size_t x = 0; x < width; ++x) is_half &= s.columns[x] == 2 * x;
    for (int k = channels.begin; k < channels.end; ++k) {
        auto to = reinterpret_cast<T*>(out[0].plane[k]);
        for (size_t y = 0; y < s.rows.size() && !stopped(); ++y, to += width) {
            if (s.rows[y] == NOTHING) {
                std::fill(to, to + width, T(0));
                continue;
            }
            if (y > 0 && s.rows[y] == s.rows[y - 1]) {
                std::copy(to - width, to, to);
                continue;
            }
            const T* const from = reinterpret_cast<const T*>(in[0].plane[k]) + s.in.pixel(s.rows[y], 0);
            if (is_half) {
                for (size_t x = 0; x < width; ++x) to[x] = from[2 * x];
                continue;
            }
            for (size_t x = 0; x < width; ++x) to[x] = s.columns[x] == NOTHING ? T(0) : from[s.columns[x]];
        }
    }
}

static void pixels(const PixelsSpec& s, Range channels, const Planes* in, const Planes* out) {
    // Codes are only moved, so their sign does not matter.
    if (size_of(s.type) == 1) pixels_of<uint8_t>(s, channels, in, out);
    else pixels_of<int32_t>(s, channels, in, out);
}

std::unique_ptr<Op> make_pixels(const PixelsSpec& spec, const Simd*, int threads) {
    return make_loops(spec, pixels, spec.out.channels, threads);
}

}  // namespace scalar
}  // namespace dbq
