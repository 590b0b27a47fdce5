// Which kernel serves an operation: lists, best first, plain loops last.
#include "kernels/select.h"

#include "kernels/isa/simd.h"

namespace dbq {
namespace {

constexpr size_t FEW_PIXELS = 3;  // up to here, lanes along the inputs are fuller than lanes along the pixels
constexpr int MANY_SUMS = 32;     // from here on, the table of sums pays for being built

template <class Spec>
bool always(const Spec&, const Simd*) {
    return true;
}

template <class Spec>
bool has_vectors(const Spec&, const Simd* simd) {
    return simd;
}

bool has_few_pixels(const ConvSpec& spec, const Simd* simd) {
    return simd && spec.out.pixels() <= FEW_PIXELS;
}

bool is_depthwise(const ConvSpec& spec, const Simd* simd) {
    return simd && spec.groups > 1 && spec.groups == spec.in.channels;
}

bool is_depthwise_3x3(const ConvSpec& spec, const Simd* simd) {
    return is_depthwise(spec, simd) && simd->depthwise_3x3 && vec::fits_depthwise_3x3(spec);
}

bool has_many_sums(const ConvSpec& spec, const Simd* simd) {
    return simd && spec.weights == Weights::Ternary && spec.outputs_in_group() * spec.branches >= MANY_SUMS;
}

bool is_ternary_of_bytes(const ConvSpec& spec, const Simd* simd) {
    return simd && spec.weights == Weights::Ternary && spec.in_type == Type::U8;
}

bool is_addition(const CombineSpec& spec, const Simd*) { return spec.in_types.size() == 2; }

bool is_addition_in_vectors(const CombineSpec& spec, const Simd* simd) {
    return simd && is_addition(spec, simd);
}

bool has_three_channels(const LookupSpec& spec, const Simd* simd) {
    return simd && simd->lookup_three && spec.shape.channels == 3;
}

constexpr Kernel<ConvSpec> CONVOLUTIONS[] = {
    {"dot-products", has_few_pixels, vec::make_dot_conv},
    {"depthwise-3x3", is_depthwise_3x3, vec::make_depthwise_3x3},
    {"depthwise", is_depthwise, vec::make_depthwise_conv},
    {"ternary-table", has_many_sums, vec::make_table_conv},
    {"dense-bytes", is_ternary_of_bytes, vec::make_dense_bytes},
    {"dense-words", has_vectors, vec::make_dense_words},
    {"convolution", always, scalar::make_conv, true},
};

constexpr Kernel<CombineSpec> COMBINATIONS[] = {
    {"add", is_addition_in_vectors, vec::make_combine},
    {"requantize", has_vectors, vec::make_combine},
    {"add", is_addition, scalar::make_combine, true},
    {"requantize", always, scalar::make_combine, true},
};

constexpr Kernel<AveragePoolSpec> AVERAGE_POOLS[] = {
    {"average pool", has_vectors, vec::make_average_pool},
    {"average pool", always, scalar::make_average_pool, true},
};

constexpr Kernel<MaxPoolSpec> MAX_POOLS[] = {
    {"max pool", has_vectors, vec::make_max_pool},
    {"max pool", always, scalar::make_max_pool, true},
};

constexpr Kernel<LookupSpec> LOOKUPS[] = {
    {"lookup", has_three_channels, vec::make_lookup},
    {"lookup", always, scalar::make_lookup, true},
};

template <class Spec, size_t Count>
const Kernel<Spec>& first_of(const Kernel<Spec> (&kernels)[Count], const Spec& spec, const Simd* simd) {
    const Kernel<Spec>* kernel = kernels;
    while (!kernel->applies(spec, simd)) ++kernel;  // the last one always does
    return *kernel;
}

}  // namespace

const Kernel<ConvSpec>& best_kernel(const ConvSpec& spec, const Simd* simd) {
    return first_of(CONVOLUTIONS, spec, simd);
}
const Kernel<CombineSpec>& best_kernel(const CombineSpec& spec, const Simd* simd) {
    return first_of(COMBINATIONS, spec, simd);
}
const Kernel<AveragePoolSpec>& best_kernel(const AveragePoolSpec& spec, const Simd* simd) {
    return first_of(AVERAGE_POOLS, spec, simd);
}
const Kernel<MaxPoolSpec>& best_kernel(const MaxPoolSpec& spec, const Simd* simd) {
    return first_of(MAX_POOLS, spec, simd);
}
const Kernel<LookupSpec>& best_kernel(const LookupSpec& spec, const Simd* simd) {
    return first_of(LOOKUPS, spec, simd);
}

}  // namespace dbq
