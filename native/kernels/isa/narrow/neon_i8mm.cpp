// The vector kernels for 64-bit ARM with products of matrices (Armv8.6 I8MM). Internal linkage, as in
// ../avx2.cpp.
#include "kernels/isa/simd.h"
#include "threads/stop.h"

#if defined(__aarch64__) && defined(__ARM_FEATURE_MATMUL_INT8)

#include <arm_neon.h>

#include <cstring>

namespace dbq {
namespace {
#include "kernels/isa/narrow/two.inc"

#include "kernels/isa/narrow/neon.inc"

#include "kernels/isa/narrow/kernels.inc"

#include "kernels/isa/narrow/quads.inc"

#include "kernels/isa/narrow/neon_matrices.inc"

constexpr Simd make_kernels() {
    Simd simd = narrow_kernels("neon-i8mm");
    simd.quad_lanes = QUAD_LANES;
    simd.quad_vectors = QUAD_VECTORS;
    simd.quad_block = QUAD_BLOCK;
    simd.quad_largest = 127;
    simd.quad_offset = 128;
    simd.pack_quads = pack_matrices;
    simd.multiply_quads = multiply_quads;
    return simd;
}

constexpr Simd KERNELS = make_kernels();

}  // namespace

const Simd* const NEON_I8MM_KERNELS = &KERNELS;

}  // namespace dbq

#else

const dbq::Simd* const dbq::NEON_I8MM_KERNELS = nullptr;

#endif
