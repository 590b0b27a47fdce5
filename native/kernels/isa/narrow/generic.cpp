// The vector kernels for every processor, by the vectors of the compiler.
#include "kernels/isa/simd.h"
#include "threads/stop.h"

#if !defined(__wasm__)

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

#include <cstring>

namespace dbq {
namespace {
#include "kernels/isa/narrow/two.inc"

#if defined(__SSE2__)
#include "kernels/isa/narrow/sse2.inc"
#else
#include "kernels/isa/narrow/portable.inc"
#endif

#include "kernels/isa/narrow/kernels.inc"

constexpr Simd KERNELS = narrow_kernels("generic");

}  // namespace

const Simd* const GENERIC_KERNELS = &KERNELS;

}  // namespace dbq

#else

const dbq::Simd* const dbq::GENERIC_KERNELS = nullptr;

#endif
