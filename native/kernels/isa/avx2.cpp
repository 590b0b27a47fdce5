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

constexpr Simd make_kernels() {
    Simd simd;
    simd.name = "avx2";
    simd.lanes = LANES;
    simd.table_vectors = MAX_TILE;
    simd.build_table = build_table;
    simd.add_lists = add_lists;
    simd.pair_bytes = pair_bytes;
    simd.pair_words = pair_words;
    simd.dense_bytes = dense_bytes;
    simd.dense_words = dense_words;
    simd.dots = dots;
    simd.take_even = take_even;
    simd.pair_lines = pair_lines;
    simd.depthwise = depthwise_lines;
    simd.depthwise_3x3 = depthwise_3x3;
    simd.lookup_three = lookup_three;
    simd.finish_i16 = finish<int16_t>;
    simd.finish_i32 = finish<int32_t>;
    simd.finish_values = finish_values;
    simd.curve = curve;
    simd.multiply = multiply;
    simd.mix = mix;
    simd.combine = combine;
    simd.sum_plane = sum_plane;
    simd.add_row = add_row;
    simd.max_rows = max_rows;
    return simd;
}

constexpr Simd KERNELS = make_kernels();  // a constant: nothing here runs before a CPU is known to have AVX2

}  // namespace

const Simd* const AVX2_KERNELS = &KERNELS;

}  // namespace dbq

#else

const dbq::Simd* const dbq::AVX2_KERNELS = nullptr;

#endif
