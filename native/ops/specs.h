// What each operation computes, and the kernels there are for it: plain loops (`scalar`), which are the
// specification, and drivers of vector kernels (`vec`), which must give the same bits. All makers take the
// table of vector kernels to use (scalar ones ignore it) and the number of threads, a hint for how finely
// to cut tasks; results do not depend on it.
#pragma once

#include "kernels/op.h"

namespace dbq {

struct Simd;
template <class Spec>
struct Kernel;

enum class Weights : uint8_t { Ternary, Fixed };

// out[k] = sum over c, y, x of codes[j][k][c][y][x] * in[...], one sum for each branch j; outside the
// image the input is 0. A linear layer is a convolution whose kernel is the whole image.
struct ConvShape {
    Shape in, out;
    Type in_type = Type::U8;  // U8 or I8
    Window window;
    int groups = 1;
    Weights weights = Weights::Ternary;
    int branches = 1;  // 1..3; Fixed has one

    int inputs() const { return in.channels / groups; }
    int outputs_in_group() const { return out.channels / groups; }
    int taps() const { return inputs() * window.kernel_h * window.kernel_w; }
    double largest_sum() const { return double(taps()) * 255 * (weights == Weights::Ternary ? 1 : 127); }
};
struct ConvSpec : ConvShape {
    std::vector<int8_t> codes;    // [branches][out.channels][inputs()][kernel_h][kernel_w]
    std::vector<Output> outputs;  // one or more: a tensor may be needed in several precisions
};
const Kernel<ConvSpec>& best_kernel(const ConvSpec&, const Simd*);
namespace scalar {
std::unique_ptr<Op> make_conv(const ConvSpec&, const Simd*, int threads);
}
namespace vec {
std::unique_ptr<Op> make_table_conv(const ConvSpec&, const Simd*, int threads);
std::unique_ptr<Op> make_dense_bytes(const ConvSpec&, const Simd*, int threads);
std::unique_ptr<Op> make_dense_words(const ConvSpec&, const Simd*, int threads);
std::unique_ptr<Op> make_dot_conv(const ConvSpec&, const Simd*, int threads);
std::unique_ptr<Op> make_depthwise_conv(const ConvSpec&, const Simd*, int threads);
bool fits_depthwise_3x3(const ConvSpec&);
std::unique_ptr<Op> make_depthwise_3x3(const ConvSpec&, const Simd*, int threads);
}  // namespace vec

// out = formula(s_0 = first input, s_1 = second): residual additions, or with one input another precision
// of the same tensor. Inputs are U8, I8 or I32, each of its own type.
struct CombineSpec {
    Shape shape;
    std::vector<Type> in_types;
    std::vector<Output> outputs;  // J = in_types.size()
};
const Kernel<CombineSpec>& best_kernel(const CombineSpec&, const Simd*);
namespace scalar {
std::unique_ptr<Op> make_combine(const CombineSpec&, const Simd*, int threads);
}
namespace vec {
std::unique_ptr<Op> make_combine(const CombineSpec&, const Simd*, int threads);
}

// out = formula(s_0 = sum over the window, zeros outside the image). The sum fits int32 (the loader checks).
struct AveragePoolSpec {
    Shape in, out;
    Type in_type = Type::I32;
    Window window;
    std::vector<Output> outputs;  // J = 1
};
const Kernel<AveragePoolSpec>& best_kernel(const AveragePoolSpec&, const Simd*);
namespace scalar {
std::unique_ptr<Op> make_average_pool(const AveragePoolSpec&, const Simd*, int threads);
}
namespace vec {
std::unique_ptr<Op> make_average_pool(const AveragePoolSpec&, const Simd*, int threads);
}

// The largest code of the window inside the image. Input and output have one type, U8, I8 or I32.
// A 1x1 window with stride n takes every n-th pixel.
struct MaxPoolSpec {
    Shape in, out;
    Type type = Type::U8;
    Window window;
};
const Kernel<MaxPoolSpec>& best_kernel(const MaxPoolSpec&, const Simd*);
namespace scalar {
std::unique_ptr<Op> make_max_pool(const MaxPoolSpec&, const Simd*, int threads);
}
namespace vec {
std::unique_ptr<Op> make_max_pool(const MaxPoolSpec&, const Simd*, int threads);
}

// The image, uint8 with interleaved channels [H][W][C], to planes of codes: out[c] = table[c][pixel].
// Its only input is one "plane": the image.
struct LookupSpec {
    Shape shape;
    Type out_type = Type::I8;
    std::vector<uint8_t> table;  // [channels][256], codes as bytes
};
const Kernel<LookupSpec>& best_kernel(const LookupSpec&, const Simd*);
namespace scalar {
std::unique_ptr<Op> make_lookup(const LookupSpec&, const Simd*, int threads);
}
namespace vec {
std::unique_ptr<Op> make_lookup(const LookupSpec&, const Simd*, int threads);
}

}  // namespace dbq
