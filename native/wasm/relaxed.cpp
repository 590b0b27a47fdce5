// The loops of relaxed dot products: signed codes by weights of seven bits, which is what all processors
// agree on. A module without memory, stack or data of its own: nothing here may need an address of a local.
#include "wasm/relaxed.h"

#include <wasm_simd128.h>

namespace dbq::relaxed {
namespace {

#define INLINE inline __attribute__((always_inline))

constexpr int BLOCK = 4, LANES = 16;  // channels whose weights follow each other; pixels

// Sums of pairs of products in 16 bits: windows (see Simd::quad_window) say how many cannot overflow.
struct Words {
    static constexpr bool HAS_WINDOWS = true;
    INLINE static v128_t add(v128_t sum, v128_t codes, v128_t weights) {
        return wasm_i16x8_add(sum, wasm_i16x8_relaxed_dot_i8x16_i7x16(codes, weights));
    }
    INLINE static v128_t widen(v128_t sum) { return wasm_i32x4_extadd_pairwise_i16x8(sum); }
};

struct Dot {
    static constexpr bool HAS_WINDOWS = false;
    INLINE static v128_t add(v128_t sum, v128_t codes, v128_t weights) {
        return wasm_i32x4_relaxed_dot_i8x16_i7x16_add(codes, weights, sum);
    }
    INLINE static v128_t widen(v128_t sum) { return sum; }
};

template <class Products, bool Two> struct Sums {
    v128_t first = wasm_i32x4_const_splat(0), second = wasm_i32x4_const_splat(0);

    INLINE void add(v128_t a, v128_t b, const int8_t* weights) {
        const v128_t w = wasm_v128_load32_splat(weights);
        first = Products::add(first, a, w);
        if (Two) second = Products::add(second, b, w);
    }
    INLINE void flush(int32_t* sums) const {
        wasm_v128_store(sums, wasm_i32x4_add(wasm_v128_load(sums), Products::widen(first)));
        if (Two) wasm_v128_store(sums + 4, wasm_i32x4_add(wasm_v128_load(sums + 4), Products::widen(second)));
    }
};

// A block of channels, one or two vectors of four pixels: eight sums, which fit the 16 registers of x86.
template <class Products, bool Two>
INLINE void add_block(const quads::Job& job, const uint8_t* codes, const int8_t* weights,
                      const uint16_t* windows, int32_t* sums) {
    const uint32_t* tap = job.taps;
    const int step = job.vectors * 16;
    for (int left = job.groups; left > 0;) {
        const int count = Products::HAS_WINDOWS ? *windows++ : left;
        left -= count;
        Sums<Products, Two> a, b, c, d;
        const auto add = [&](const uint8_t* from) __attribute__((always_inline)) {
            const v128_t x = wasm_v128_load(from), y = Two ? wasm_v128_load(from + 16) : x;
            a.add(x, y, weights);
            b.add(x, y, weights + 4);
            c.add(x, y, weights + 8);
            d.add(x, y, weights + 12);
            weights += 4 * BLOCK;
        };
        if (tap)
            for (int g = 0; g < count; ++g) add(codes + *tap++);
        else
            for (int g = 0; g < count; ++g, codes += step) add(codes);
        a.flush(sums);
        b.flush(sums + LANES);
        c.flush(sums + 2 * LANES);
        d.flush(sums + 3 * LANES);
    }
}

template <class Products> INLINE void multiply(const quads::Job& job, int first, int count, int32_t* sums) {
    for (int c = 0; c < count; c += BLOCK, sums += BLOCK * LANES) {
        const int block = (first + c) / BLOCK;
        const int8_t* const weights = job.weights + block * job.groups * 4 * BLOCK;
        const uint16_t* const windows =
            Products::HAS_WINDOWS ? job.windows + job.first_window[block] : nullptr;
        int v = 0;
        for (; v + 2 <= job.vectors; v += 2)
            add_block<Products, true>(job, job.codes + 16 * v, weights, windows, sums + 4 * v);
        if (v < job.vectors)
            add_block<Products, false>(job, job.codes + 16 * v, weights, windows, sums + 4 * v);
    }
}

}  // namespace

extern "C" void dbq_relaxed_words(const quads::Job& job, int first, int count, int32_t* sums) {
    multiply<Words>(job, first, count, sums);
}

extern "C" void dbq_relaxed_dot(const quads::Job& job, int first, int count, int32_t* sums) {
    multiply<Dot>(job, first, count, sums);
}

// Weights of eight bits are where processors differ, so they tell which instructions are behind it.
extern "C" int dbq_relaxed_kind(int32_t minus_one, int32_t largest, int32_t smallest) {
    const auto dot = [](int32_t code, int32_t weight) {
        return wasm_i32x4_extract_lane(
            wasm_i32x4_relaxed_dot_i8x16_i7x16_add(
                wasm_i8x16_splat(int8_t(code)), wasm_i8x16_splat(int8_t(weight)), wasm_i32x4_const_splat(0)),
            0);
    };
    const bool is_signed = dot(largest, minus_one) < 0;
    // Sums of two products in 16 bits overflow, where there are such sums.
    if (is_signed) return dot(smallest, smallest) == 4 * 128 * 128 ? DOT : SLOW;
    return dot(largest, minus_one) == 4 * 127 * 255 ? DOT : WORDS;
}

}  // namespace dbq::relaxed
