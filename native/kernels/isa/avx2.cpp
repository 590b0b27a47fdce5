// The vector kernels for x86 with AVX2. Everything has internal linkage: no function compiled here may
// be shared with files that must run on older CPUs.
#include "kernels/isa/simd.h"

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

const Simd kernels = {"avx2",      build_table,   add_lists,    pair_bytes,      pair_words,
                      dense_bytes, dense_words,   dots,         take_even,       pair_lines,
                      depthwise,   depthwise_3x3, lookup_three, finish<int16_t>, finish<int32_t>,
                      combine,     sum_plane,     add_row,      max_rows};
}  // namespace

const Simd* simd_avx2() { return &kernels; }

}  // namespace dbq

#endif
