// Vectors of floats as the compiler has them: single registers with AVX-512, pairs with AVX2.
#pragma once

#include <cstdint>
#include <cstring>

#define INLINE inline __attribute__((always_inline))

namespace dbq {

constexpr int LANES = 16;
typedef float Floats __attribute__((vector_size(4 * LANES), aligned(4)));
typedef int32_t Ints __attribute__((vector_size(4 * LANES), aligned(4)));

// Up to LANES floats of the `left` that there are. A short tail is a full vector, filled up with zeros, so
// that all elements take the same path.
INLINE Floats load(const float* from, int64_t left) {
    Floats x = {};
    if (left >= LANES) std::memcpy(&x, from, sizeof x);
    else std::memcpy(&x, from, 4 * size_t(left));
    return x;
}
INLINE void store(float* to, int64_t left, Floats x) {
    if (left >= LANES) std::memcpy(to, &x, sizeof x);
    else std::memcpy(to, &x, 4 * size_t(left));
}

}  // namespace dbq
