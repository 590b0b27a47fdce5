// The vector kernels for x86 with AVX2. Everything has internal linkage: no function compiled here may
// be shared with files that must run on older CPUs.
#include "simd.h"

#if defined(__AVX2__)

#include <immintrin.h>

#include <cstring>

namespace dbq {
namespace {
#include "vec.h"

#include "depthwise_3x3_avx2.h"
#include "depthwise_kernels.h"
#include "dense_kernels.h"
#include "finish_kernels.h"
#include "lookup_avx2.h"
#include "pool_kernels.h"
#include "table_kernels.h"

const Simd kernels = {"avx2",     build_table, add_lists, pair_bytes,    pair_words,      dense_bytes,
                      dense_words, dots,       take_even, pair_lines, depthwise,     depthwise_3x3, lookup_three,
                      finish<int16_t>, finish<int32_t>, combine,    sum_plane,   add_row,   max_rows};
}  // namespace

const Simd* simd_avx2() { return &kernels; }

}  // namespace dbq

#endif
