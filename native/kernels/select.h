// Choosing kernels. A kernel is an entry of one of the lists in select.cpp; the first one that applies
// serves the operation. The choice is a pure function of the operation and of the vector kernels in use.
#pragma once

#include <functional>
#include <string>

#include "kernels/cpu.h"
#include "ops/specs.h"

namespace dbq {

// `simd` is the table of vector kernels in use, null where there are only plain loops.
template <class Spec>
struct Kernel {
    const char* name;
    bool (*applies)(const Spec&, const Simd* simd);
    Maker<Spec>* make;
    bool is_scalar = false;
};

// Such as "ternary-table avx2".
template <class Spec>
std::string kernel_name(const Spec& spec, const Simd* simd) {
    const Kernel<Spec>& kernel = best_kernel(spec, simd);
    return std::string(kernel.name) + " " + isa_name(kernel.is_scalar ? nullptr : simd);
}

template <class Spec>
std::string kernel_name(const Spec& spec, const Cpu& cpu) {
    return kernel_name(spec, choose_simd(cpu, nullptr));
}

template <class Spec>
std::unique_ptr<Op> make_op(const Spec& spec, const Simd* simd, int threads) {
    return best_kernel(spec, simd).make(spec, simd, threads);
}

}  // namespace dbq
