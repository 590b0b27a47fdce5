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

#include "kernels/isa/dense.inc"
#include "kernels/isa/depthwise.inc"
#include "kernels/isa/finish.inc"
#include "kernels/isa/pool.inc"
#include "kernels/isa/table.inc"
#include "kernels/isa/values.inc"
#include "kernels/isa/x86/avx2_depthwise_3x3.inc"
#include "kernels/isa/x86/avx2_lookup.inc"

#include "kernels/isa/x86/avx2_quads.inc"

#include "kernels/isa/kernels.inc"

constexpr Simd make_kernels() {
    Simd simd = shared_kernels();
    simd.name = "avx2";
    simd.quad_lanes = 8;
    simd.quad_vectors = 2;
    simd.quad_block = QUAD_BLOCK;
    simd.quad_largest = 64;
    simd.quad_taps = true;
    simd.quad_window = 128;  // 255 * 128 < 2^15
    simd.pack_quads = pack_quads;
    simd.multiply_quads = multiply_quads;
    return simd;
}

constexpr Simd KERNELS = make_kernels();  // a constant: nothing here runs before a CPU is known to have AVX2

}  // namespace

const Simd* const AVX2_KERNELS = &KERNELS;

}  // namespace dbq

#else

const dbq::Simd* const dbq::AVX2_KERNELS = nullptr;

#endif
