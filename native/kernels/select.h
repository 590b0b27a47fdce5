// Choosing kernels. A kernel is an entry of one of the lists in select.cpp; the first one that applies
// serves the operation. The choice is a pure function of the operation and of the vector kernels in use.
#pragma once

#include <string>

#include "kernels/cpu.h"
#include "ops/specs.h"

namespace dbq {

template <class Spec> struct Kernel {
    const char* name;
    Maker<Spec>* make;
    bool (*applies)(const Spec&, const Simd*) = nullptr;  // null: always
    bool is_scalar = false;                               // otherwise of no use without vector kernels

    static const Kernel LIST[];  // best first, plain loops last
};
template <> const Kernel<ConvSpec> Kernel<ConvSpec>::LIST[];
template <> const Kernel<CombineSpec> Kernel<CombineSpec>::LIST[];
template <> const Kernel<AveragePoolSpec> Kernel<AveragePoolSpec>::LIST[];
template <> const Kernel<MaxPoolSpec> Kernel<MaxPoolSpec>::LIST[];
template <> const Kernel<LookupSpec> Kernel<LookupSpec>::LIST[];
template <> const Kernel<CurveSpec> Kernel<CurveSpec>::LIST[];
template <> const Kernel<MultiplySpec> Kernel<MultiplySpec>::LIST[];
template <> const Kernel<PixelsSpec> Kernel<PixelsSpec>::LIST[];
template <> const Kernel<BilinearSpec> Kernel<BilinearSpec>::LIST[];

// `simd` is the table of vector kernels in use, null where there are only plain loops.
template <class Spec> const Kernel<Spec>& best_kernel(const Spec& spec, const Simd* simd) {
    const Kernel<Spec>* kernel = Kernel<Spec>::LIST;
    while (!(simd || kernel->is_scalar) || (kernel->applies && !kernel->applies(spec, simd))) ++kernel;
    return *kernel;
}

// Such as "ternary-table avx2".
template <class Spec> std::string kernel_name(const Spec& spec, const Simd* simd) {
    const Kernel<Spec>& kernel = best_kernel(spec, simd);
    return std::string(kernel.name) + " " + isa_name(kernel.is_scalar ? nullptr : simd);
}

template <class Spec> std::unique_ptr<Op> make_op(const Spec& spec, const Simd* simd, int threads) {
    return best_kernel(spec, simd).make(spec, simd, threads);
}

}  // namespace dbq
