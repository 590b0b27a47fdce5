// The vector kernels for x86 with AVX2. Everything has internal linkage: no function compiled here may
// be shared with files that must run on older CPUs.
#include "kernels/isa/simd.h"
#include "threads/stop.h"

#if defined(__AVX2__)

#include <immintrin.h>

#include <cstring>

namespace dbq {
namespace {
#include "kernels/isa/vec.inc"

#include "kernels/isa/avx2_depthwise_3x3.inc"
#include "kernels/isa/avx2_lookup.inc"
#include "kernels/isa/dense.inc"
#include "kernels/isa/depthwise.inc"
#include "kernels/isa/finish.inc"
#include "kernels/isa/pool.inc"
#include "kernels/isa/table.inc"
#include "kernels/isa/values.inc"

#include "kernels/isa/kernels.inc"

constexpr Simd make_kernels() {
    Simd simd = shared_kernels();
    simd.name = "avx2";
    return simd;
}

constexpr Simd KERNELS = make_kernels();  // a constant: nothing here runs before a CPU is known to have AVX2

}  // namespace

const Simd* const AVX2_KERNELS = &KERNELS;

}  // namespace dbq

#else

const dbq::Simd* const dbq::AVX2_KERNELS = nullptr;

#endif
