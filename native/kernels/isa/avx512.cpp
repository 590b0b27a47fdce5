// The vector kernels for x86 with AVX-512 (F, BW, VL) and VNNI, for its dot products of bytes. Kernels that
// are not limited by arithmetic are those of AVX2, compiled for these registers. Internal linkage, as in
// avx2.cpp.
#include "kernels/isa/simd.h"
#include "threads/stop.h"

#if defined(__AVX512VNNI__) && defined(__AVX512BW__) && defined(__AVX512VL__)

#include <immintrin.h>

#include <climits>
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
#include "kernels/isa/x86/avx2_lookup.inc"
#include "kernels/isa/x86/avx512_quads.inc"

#include "kernels/isa/x86/avx512_combine.inc"
#include "kernels/isa/x86/avx512_copies.inc"
#include "kernels/isa/x86/avx512_depthwise.inc"
#include "kernels/isa/x86/avx512_mixed.inc"
#include "kernels/isa/x86/avx512_shuffles.inc"

// Dot products serve every layer that the kernel of AVX2 would.
constexpr decltype(Simd::depthwise_3x3) depthwise_3x3 = nullptr;

#include "kernels/isa/kernels.inc"

constexpr Simd make_kernels() {
    Simd simd = shared_kernels();
    simd.name = "avx512";
    simd.quad_lanes = 16;
    simd.quad_vectors = 4;
    simd.quad_block = 4;
    simd.quad_largest = 127;
    simd.quad_taps = true;
    simd.copy_quads = copy_quads;
    simd.combine = combine_wide;
    simd.pack_quads = pack_quads;
    simd.depthwise_quads = depthwise_quads;
    simd.multiply_quads = multiply_quads;
    simd.add_lists_and_quads = add_lists_and_quads;
    simd.add_shuffled = add_shuffled;
    simd.transpose_sums = transpose_sums;
    return simd;
}

constexpr Simd KERNELS =
    make_kernels();  // a constant: nothing here runs before a CPU is known to have AVX-512

}  // namespace

const Simd* const AVX512_KERNELS = &KERNELS;

}  // namespace dbq

#else

const dbq::Simd* const dbq::AVX512_KERNELS = nullptr;

#endif
