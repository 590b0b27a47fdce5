// Which kernel serves an operation: lists, best first, plain loops last.
#include "kernels/select.h"

#include "kernels/isa/simd.h"

namespace dbq {
namespace {

constexpr size_t FEW_PIXELS = 3;  // up to here, lanes along the inputs are fuller than lanes along the pixels
constexpr int MANY_SUMS = 32;     // from here on, the table of sums pays for being built
constexpr int MIXED_INPUTS = 96, MIXED_OUTPUTS = 128;  // the same, beside dot products
constexpr size_t MIXED_PIXELS = 128;
constexpr int SHUFFLED_INPUTS = 256, SHUFFLED_OUTPUTS = 512;  // tables of single pixels, in smaller images
constexpr int QUAD_SUMS = 64;             // and from here on also if products are as fast as its additions
constexpr int MAX_DEPTHWISE_ROWS = 1024;  // of a dilated kernel: positions in all its lines fit an int
constexpr bool SCALAR = true;

bool has_few_pixels(const ConvSpec& spec, const Simd*) { return spec.out.pixels() <= FEW_PIXELS; }

bool is_depthwise(const ConvSpec& spec, const Simd*) {
    const int rows = (spec.window.kernel_h - 1) * spec.window.dilation_h + 1;
    return spec.groups > 1 && spec.groups == spec.in.channels && rows <= MAX_DEPTHWISE_ROWS;
}

bool is_depthwise_3x3(const ConvSpec& spec, const Simd* simd) {
    return is_depthwise(spec, simd) && simd->depthwise_3x3 && vec::fits_depthwise_3x3(spec);
}

bool is_depthwise_of_quads(const ConvSpec& spec, const Simd* simd) {
    return is_depthwise(spec, simd) && simd->depthwise_quads && vec::fits_depthwise_quads(spec);
}

// Without fast products of bytes, small integers are sums of ternary branches again.
bool has_many_sums(const ConvSpec& spec, const Simd* simd) {
    int sums = spec.branches;
    if (spec.weights == Weights::Fixed) sums = simd->finish_joined ? vec::branches_of(spec) : 0;
    return spec.outputs_in_group() * sums >= MANY_SUMS;
}

bool is_ternary_of_bytes(const ConvSpec& spec, const Simd*) {
    return spec.weights == Weights::Ternary && spec.in_type == Type::U8;
}

// Products serve one sum each. For one branch, a table is as fast as products that are added in 16 bits; a
// dot product is as fast as a table, and needs none to be built.
bool has_quads(const ConvSpec& spec, const Simd* simd) {
    if (!simd->multiply_quads || spec.branches > 1 || spec.largest > simd->quad_largest) return false;
    return spec.weights == Weights::Fixed || !simd->quad_window ||
           (simd->quad_ternary && spec.outputs_in_group() <= QUAD_SUMS);
}

bool is_pointwise_of_one_branch(const ConvSpec& spec) {
    return spec.weights == Weights::Ternary && spec.branches == 1 && spec.groups == 1 &&
           spec.taps() == spec.in.channels && spec.in.pixels() == spec.out.pixels();
}

// One branch, where the table of sums pays for being built even if dot products are there.
bool has_rows_and_quads(const ConvSpec& spec, const Simd* simd) {
    return simd->add_lists_and_quads && is_pointwise_of_one_branch(spec) &&
           spec.in.channels >= MIXED_INPUTS && spec.out.channels >= MIXED_OUTPUTS &&
           spec.out.pixels() >= MIXED_PIXELS;
}

// The same for small images, which would leave lanes of pixels empty.
bool has_shuffles_and_quads(const ConvSpec& spec, const Simd* simd) {
    return simd->add_shuffled && is_pointwise_of_one_branch(spec) && spec.in.channels >= SHUFFLED_INPUTS &&
           spec.out.channels >= SHUFFLED_OUTPUTS && spec.out.pixels() < MIXED_PIXELS;
}

bool is_addition(const CombineSpec& spec, const Simd*) { return spec.in_types.size() == 2; }

bool is_sum(const AveragePoolSpec& spec, const Simd*) { return !spec.is_mean; }

bool has_three_channels(const LookupSpec& spec, const Simd* simd) {
    return simd->lookup_three && spec.shape.channels == 3;
}

}  // namespace

template <>
const Kernel<ConvSpec> Kernel<ConvSpec>::LIST[] = {
    {"dot-products", vec::make_dot_conv, has_few_pixels},
    {"depthwise-quads", vec::make_depthwise_quads, is_depthwise_of_quads},
    {"depthwise-3x3", vec::make_depthwise_3x3, is_depthwise_3x3},
    {"depthwise", vec::make_depthwise_conv, is_depthwise},
    {"table-and-quads", vec::make_mixed_conv, has_rows_and_quads},
    {"shuffles-and-quads", vec::make_shuffle_conv, has_shuffles_and_quads},
    {"dense-quads", vec::make_quad_conv, has_quads},
    {"ternary-table", vec::make_table_conv, has_many_sums},
    {"dense-bytes", vec::make_dense_bytes, is_ternary_of_bytes},
    {"dense-words", vec::make_dense_words},
    {"convolution", scalar::make_conv, nullptr, SCALAR},
};

template <>
const Kernel<CombineSpec> Kernel<CombineSpec>::LIST[] = {
    {"add", vec::make_combine, is_addition},
    {"requantize", vec::make_combine},
    {"add", scalar::make_combine, is_addition, SCALAR},
    {"requantize", scalar::make_combine, nullptr, SCALAR},
};

template <>
const Kernel<AveragePoolSpec> Kernel<AveragePoolSpec>::LIST[] = {
    {"average pool", vec::make_average_pool, is_sum},
    {"mean pool", vec::make_average_pool},
    {"average pool", scalar::make_average_pool, is_sum, SCALAR},
    {"mean pool", scalar::make_average_pool, nullptr, SCALAR},
};

template <>
const Kernel<MaxPoolSpec> Kernel<MaxPoolSpec>::LIST[] = {
    {"max pool", vec::make_max_pool},
    {"max pool", scalar::make_max_pool, nullptr, SCALAR},
};

template <>
const Kernel<LookupSpec> Kernel<LookupSpec>::LIST[] = {
    {"lookup", vec::make_lookup, has_three_channels},
    {"lookup", scalar::make_lookup, nullptr, SCALAR},
};

template <>
const Kernel<CurveSpec> Kernel<CurveSpec>::LIST[] = {
    {"curve", vec::make_curve},
    {"curve", scalar::make_curve, nullptr, SCALAR},
};

template <>
const Kernel<MultiplySpec> Kernel<MultiplySpec>::LIST[] = {
    {"multiply", vec::make_multiply},
    {"multiply", scalar::make_multiply, nullptr, SCALAR},
};

template <>
const Kernel<PixelsSpec> Kernel<PixelsSpec>::LIST[] = {
    {"pixels", scalar::make_pixels, nullptr, SCALAR},
};

template <>
const Kernel<BilinearSpec> Kernel<BilinearSpec>::LIST[] = {
    {"bilinear", vec::make_bilinear},
    {"bilinear", scalar::make_bilinear, nullptr, SCALAR},
};

}  // namespace dbq
