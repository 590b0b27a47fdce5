// Which kernel serves an operation: a pure function of instruction set, weights and shape.
#include <stdexcept>

#include "kernels/op.h"
#include "kernels/scalar/scalar.h"
#include "kernels/vector/vector_ops.h"

namespace dbq {
namespace {

// The kernels of an instruction set, if this library was built with them.
const Simd* simd_for(Isa isa) {
#if defined(__x86_64__)
    if (isa == Isa::Avx2) return simd_avx2();
#endif
    (void)isa;
    return nullptr;
}

constexpr size_t FEW_PIXELS = 3;  // lanes along the inputs are fuller than lanes along the pixels
constexpr int MANY_SUMS = 32;     // from here on the table of sums pays for being built

}  // namespace

std::unique_ptr<Op> make_conv(const ConvSpec& spec, Isa isa, int threads) {
    const double taps = double(spec.in.channels / spec.groups) * spec.kernel_h * spec.kernel_w;
    if (spec.weights == Weights::Fixed && taps * 255 * 127 >= 2147483648.0)
        throw std::invalid_argument("a sum of so many products may not fit 32 bits");
    const Simd* simd = simd_for(isa);
    if (!simd) return scalar::make_conv(spec, threads);
    if (spec.out.pixels() <= FEW_PIXELS) return make_dot_conv(spec, *simd, threads);
    if (spec.groups > 1 && spec.groups == spec.in.channels) return make_depthwise_conv(spec, *simd, threads);
    const int sums = spec.out.channels / spec.groups * spec.branches;
    if (spec.weights == Weights::Ternary && sums >= MANY_SUMS) return make_table_conv(spec, *simd, threads);
    return make_dense_conv(spec, *simd, threads);
}

std::unique_ptr<Op> make_add(const AddSpec& spec, Isa isa, int threads) {
    const Simd* simd = simd_for(isa);
    return simd ? make_combine(spec.shape, {spec.a, spec.b}, spec.outputs, *simd, threads)
                : scalar::make_add(spec, threads);
}

std::unique_ptr<Op> make_requantize(const RequantizeSpec& spec, Isa isa, int threads) {
    const Simd* simd = simd_for(isa);
    return simd ? make_combine(spec.shape, {spec.in_type}, spec.outputs, *simd, threads)
                : scalar::make_requantize(spec, threads);
}

std::unique_ptr<Op> make_average_pool(const AveragePoolSpec& spec, Isa isa, int threads) {
    const Simd* simd = simd_for(isa);
    return simd ? make_average_pool(spec, *simd, threads) : scalar::make_average_pool(spec, threads);
}

std::unique_ptr<Op> make_max_pool(const MaxPoolSpec& spec, Isa isa, int threads) {
    const Simd* simd = simd_for(isa);
    return simd ? make_max_pool(spec, *simd, threads) : scalar::make_max_pool(spec, threads);
}

std::unique_ptr<Op> make_lookup(const LookupSpec& spec, Isa isa, int threads) {
    const Simd* simd = simd_for(isa);
    return simd ? make_lookup(spec, *simd, threads) : scalar::make_lookup(spec, threads);
}

}  // namespace dbq
