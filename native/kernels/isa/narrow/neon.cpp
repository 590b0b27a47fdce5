// The vector kernels for 64-bit ARM, all of which has NEON.
#include "kernels/isa/simd.h"
#include "threads/stop.h"

#if defined(__aarch64__)

#include <arm_neon.h>

#include <cstring>

namespace dbq {
namespace {
#include "kernels/isa/narrow/two.inc"

#include "kernels/isa/narrow/neon.inc"

#include "kernels/isa/narrow/kernels.inc"

constexpr Simd KERNELS = narrow_kernels("neon");

}  // namespace

const Simd* const NEON_KERNELS = &KERNELS;

}  // namespace dbq

#else

const dbq::Simd* const dbq::NEON_KERNELS = nullptr;

#endif
