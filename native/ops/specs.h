// What each operation computes, and the makers of its kernels.
#pragma once

#include "kernels/op.h"

namespace dbq {

// Ternary branches that a file joins with whole numbers are Fixed here: small integers.
enum class Weights : uint8_t { Ternary, Fixed };

// out[k] = sum over c, y, x of codes[j][k][c][y][x] * in[...], one sum for each branch j; outside the
// image the input is 0. A linear layer is a convolution whose kernel is the whole image.
struct ConvShape {
    Shape in, out;
    Type in_type = Type::U8;  // U8 or I8
    Window window;
    int groups = 1;
    Weights weights = Weights::Ternary;
    int branches = 1;   // 1..3; Fixed has one
    int largest = 127;  // no code is larger in size

    int inputs() const { return in.channels / groups; }
    int outputs_in_group() const { return out.channels / groups; }
    int taps() const { return inputs() * window.kernel_h * window.kernel_w; }
    double largest_sum() const { return double(taps()) * 255 * largest; }
};
struct ConvSpec : ConvShape {
    std::vector<int8_t> codes;    // [branches][out.channels][inputs()][kernel_h][kernel_w]
    std::vector<Output> outputs;  // one or more: a tensor may be needed in several precisions

    const int8_t* kernel(int j, int k) const {
        return codes.data() + (size_t(j) * size_t(out.channels) + size_t(k)) * size_t(taps());
    }
};

// out = formula(s_0 = first input, s_1 = second): residual additions, or with one input another precision
// of the same tensor. Inputs are U8, I8 or I32, each of its own type.
struct CombineSpec {
    Shape shape;
    std::vector<Type> in_types;
    std::vector<Output> outputs;  // J = in_types.size()
};

// out = formula(s_0 = sum over the window, zeros outside the image). The sum fits int32 (the loader checks).
// Mean: v = float(sum) / float(pixels inside the image).
struct AveragePoolSpec {
    Shape in, out;
    Type in_type = Type::I32;
    Window window;
    std::vector<Output> outputs;  // J = 1
    bool is_mean = false;
};

// out = formula(v = g(x) or x * g(x), x = code * scale): g goes through knots at equal distances from low to
// high, in straight segments, and is constant outside. Every step is rounded to float32 by itself; the limits
// of the format keep all of them finite.
struct CurveSpec {
    Shape shape;
    Type in_type = Type::I32;
    float scale = 1;  // of the input
    bool times_x = false;
    float low = 0, high = 1, density = 1;  // density: segments / (high - low)
    std::vector<float> knots;              // segments + 1
    std::vector<Output> outputs;           // J = 1

    int segments() const { return int(knots.size()) - 1; }
};

// out = formula(v = float(a) * float(b)). b may have one pixel for all of a channel, or one channel for all.
struct MultiplySpec {
    Shape shape, factor;  // of a and the output, and of b
    Type types[2] = {Type::I32, Type::I32};
    std::vector<Output> outputs;  // J = 1

    int channel(int k) const { return factor.channels == 1 ? 0 : k; }
};

// Output pixel (y, x) is input pixel (rows[y], columns[x]), 0 where either is NOTHING. Input and output have
// one type, U8, I8 or I32.
constexpr uint16_t NOTHING = 0xFFFF;
struct PixelsSpec {
    Shape in, out;
    Type type = Type::U8;
    std::vector<uint16_t> rows, columns;
};

// out = formula(v): two pixels of two lines each are mixed, then the results.
struct Blend {
    uint16_t first = 0, second = 0;
    float share = 0;  // of the second

    float mix(float p, float q) const { return p + share * (q - p); }
};
struct BilinearSpec {
    Shape in, out;
    Type in_type = Type::I32;
    std::vector<Blend> rows, columns;
    std::vector<Output> outputs;  // J = 1
};

// The largest code of the window inside the image. Input and output have one type, U8, I8 or I32.
// A 1x1 window with stride n takes every n-th pixel.
struct MaxPoolSpec {
    Shape in, out;
    Type type = Type::U8;
    Window window;
};

// The image, uint8 with interleaved channels [H][W][C], to planes of codes: out[c] = table[c][pixel].
// Its only input is one "plane": the image.
struct LookupSpec {
    Shape shape;
    Type out_type = Type::I8;
    std::vector<uint8_t> table;  // [channels][256], codes as bytes
};

// ---- Kernels. `simd` is the table of vector kernels to use, null for plain loops; `threads` says how finely
// to cut tasks. Results do not depend on either.

struct Simd;
template <class Spec> using Maker = std::unique_ptr<Op>(const Spec&, const Simd* simd, int threads);

// Plain loops: the specification, beside the operation's bytes in this folder.
namespace scalar {
Maker<ConvSpec> make_conv;
Maker<CombineSpec> make_combine;
Maker<AveragePoolSpec> make_average_pool;
Maker<MaxPoolSpec> make_max_pool;
Maker<LookupSpec> make_lookup;
Maker<CurveSpec> make_curve;
Maker<MultiplySpec> make_multiply;
Maker<PixelsSpec> make_pixels;
Maker<BilinearSpec> make_bilinear;
}  // namespace scalar

// Drivers of vector kernels, in kernels/vector/: the same bits.
namespace vec {
Maker<ConvSpec> make_table_conv, make_dense_bytes, make_dense_words, make_dot_conv, make_depthwise_conv,
    make_depthwise_3x3, make_depthwise_quads, make_quad_conv, make_mixed_conv, make_shuffle_conv;
bool fits_depthwise_3x3(const ConvSpec&), fits_depthwise_quads(const ConvSpec&);
// How many ternary branches, two or three, make these weights with whole numbers as scales; 0: more.
int branches_of(const ConvSpec&);
Maker<CombineSpec> make_combine;
Maker<AveragePoolSpec> make_average_pool;
Maker<MaxPoolSpec> make_max_pool;
Maker<LookupSpec> make_lookup;
Maker<CurveSpec> make_curve;
Maker<MultiplySpec> make_multiply;
Maker<BilinearSpec> make_bilinear;
}  // namespace vec

}  // namespace dbq
