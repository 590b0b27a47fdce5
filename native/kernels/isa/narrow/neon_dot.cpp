// The vector kernels for 64-bit ARM with dot products (Armv8.2 DotProd). Internal linkage, as in ../avx2.cpp.
#include "kernels/isa/simd.h"
#include "threads/stop.h"

#if defined(__aarch64__) && defined(__ARM_FEATURE_DOTPROD)

#include <arm_neon.h>

#include <cstring>

namespace dbq {
namespace {
#include "kernels/isa/narrow/two.inc"

#include "kernels/isa/narrow/neon.inc"

#include "kernels/isa/narrow/kernels.inc"

#include "kernels/isa/narrow/quads.inc"

#include "kernels/isa/narrow/neon_quads.inc"

constexpr Simd make_kernels() {
    Simd simd = narrow_kernels("neon-dot");
    simd.quad_lanes = QUAD_LANES;
    simd.quad_vectors = QUAD_VECTORS;
    simd.quad_block = QUAD_BLOCK;
    simd.quad_largest = 127;
    simd.quad_offset = 128;
    simd.pack_quads = pack_quads;
    simd.multiply_quads = multiply_quads;
    return simd;
}

constexpr Simd KERNELS = make_kernels();

}  // namespace

const Simd* const NEON_DOT_KERNELS = &KERNELS;

}  // namespace dbq

#else

const dbq::Simd* const dbq::NEON_DOT_KERNELS = nullptr;

#endif
