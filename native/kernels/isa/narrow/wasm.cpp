// The vector kernels for WebAssembly with vectors of 128 bits.
#include "kernels/isa/simd.h"
#include "threads/stop.h"

#if defined(__wasm_simd128__)

#include <wasm_simd128.h>

#include <cstring>

#include "wasm/relaxed.h"

namespace dbq {
namespace {
#include "kernels/isa/narrow/two.inc"

#include "kernels/isa/narrow/wasm.inc"

#include "kernels/isa/narrow/kernels.inc"

#include "kernels/isa/narrow/quads.inc"
#include "kernels/isa/narrow/wasm_quads.inc"

constexpr Simd KERNELS = narrow_kernels("wasm");
constexpr Simd WORDS = relaxed_kernels("wasm-relaxed", 255);  // 255 * 128 < 2^15
constexpr Simd DOT = relaxed_kernels("wasm-dot", 0);

}  // namespace

const Simd* const WASM_KERNELS = &KERNELS;
const Simd* const WASM_RELAXED_KERNELS = &WORDS;
const Simd* const WASM_DOT_KERNELS = &DOT;

const char* relaxed::name() {
    return relaxed_kind == DOT ? "wasm-dot" : relaxed_kind == WORDS ? "wasm-relaxed" : "wasm";
}

}  // namespace dbq

extern "C" void dbq_use_relaxed(dbq::relaxed::Kind kind, dbq::relaxed::Multiply multiply) {
    dbq::relaxed_kind = kind;
    dbq::multiply_relaxed = multiply;
}

#else

const dbq::Simd* const dbq::WASM_KERNELS = nullptr;
const dbq::Simd* const dbq::WASM_RELAXED_KERNELS = nullptr;
const dbq::Simd* const dbq::WASM_DOT_KERNELS = nullptr;

#endif
