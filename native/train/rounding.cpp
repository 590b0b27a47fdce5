// Rounding and clipping of activations, forward and backward, and their codes as bytes, for float32 on a CPU.
//
// src/dbq/quantizers/rounding.py is the specification: the same float operations in the same order, so the
// same bits. What counts here is passes over memory: torch makes four forward and two
// backward, this makes one, and none backward where nothing was clipped.

#include <atomic>
#include <cstdint>
#include <cstring>

#include "train/parallel.h"
#include "train/vectors.h"

namespace {

using namespace dbq;

// Adding 1.5 * 2^23 rounds |x| < 2^22 to the nearest integer, halves to even. NaN stays NaN.
constexpr float ROUND = 12582912.0f;

struct Grid {
    float step, low, high;  // the smallest and the largest code
};

// What a call does with a range of elements; true if a value was clipped (forward only).
struct Job {
    enum { FORWARD, BACKWARD, PACK, UNPACK } what;
    Grid grid;
    const void* from;
    const float* gradient;
    void* to;

    INLINE bool forward(const float* x, float* out, int64_t first, int64_t last) const {
        // Copies, which no store to memory can change: else they are read again after each.
        const float step = grid.step, low = grid.low, high = grid.high, clip = high * step;
        Ints clipped = {};
        for (int64_t i = first; i < last; i += LANES) {
            const Floats value = load(x + i, last - i);
            Floats code = value / step;
            code = code < low ? Floats{} + low : code;
            code = code > high ? Floats{} + high : code;
            clipped |= (value <= clip) == 0;  // NaN counts as clipped: it gets no gradient
            if (low < 0) clipped |= (value >= -clip) == 0;
            store(out + i, last - i, ((code + ROUND) - ROUND) * step);
        }
        bool any = false;
        for (int lane = 0; lane < LANES; ++lane) any |= clipped[lane] != 0;
        return any;
    }

    INLINE void backward(const float* x, float* out, int64_t first, int64_t last) const {
        const float clip = grid.high * grid.step;
        const bool is_signed = grid.low < 0;
        for (int64_t i = first; i < last; i += LANES) {
            const Floats value = load(x + i, last - i), G = load(gradient + i, last - i);
            Floats kept = value <= clip ? G : Floats{};
            if (is_signed) kept = value >= -clip ? kept : Floats{};
            store(out + i, last - i, kept);
        }
    }

    // A code times the step, times the step's inverse, is off by less than 2^-14 for codes below 2^8;
    // adding ROUND leaves the integer in the low bits. Those of int8_t are the same as those of uint8_t.
    INLINE void pack(const float* x, uint8_t* codes, int64_t first, int64_t last) const {
        const float inverse = 1 / grid.step;
        for (int64_t i = first; i < last; ++i) {
            const float shifted = x[i] * inverse + ROUND;
            uint32_t bits;
            std::memcpy(&bits, &shifted, sizeof bits);
            codes[i] = uint8_t(bits);
        }
    }

    template <class Code>
    INLINE void unpack(const Code* codes, float* out, int64_t first, int64_t last) const {
        const float step = grid.step;
        for (int64_t i = first; i < last; ++i) out[i] = float(codes[i]) * step;
    }

    INLINE bool range(int64_t first, int64_t last) const {
        const auto* x = static_cast<const float*>(from);
        auto* out = static_cast<float*>(to);
        if (what == FORWARD) return forward(x, out, first, last);
        if (what == BACKWARD) backward(x, out, first, last);
        else if (what == PACK) pack(x, static_cast<uint8_t*>(to), first, last);
        else if (grid.low < 0) unpack(static_cast<const int8_t*>(from), out, first, last);
        else unpack(static_cast<const uint8_t*>(from), out, first, last);
        return false;
    }
};

// The same code compiled three times for x86, as the staircase is; without FMA, since each operation is
// rounded by itself.
bool range_plain(const Job& job, int64_t first, int64_t last) { return job.range(first, last); }
#ifdef __x86_64__
__attribute__((target("avx2"))) bool range_avx2(const Job& job, int64_t first, int64_t last) {
    return job.range(first, last);
}
__attribute__((target("avx512f,avx512bw"))) bool range_avx512(const Job& job, int64_t first, int64_t last) {
    return job.range(first, last);
}
const auto RANGE = __builtin_cpu_supports("avx512bw") ? range_avx512
                   : __builtin_cpu_supports("avx2")   ? range_avx2
                                                      : range_plain;
#else
const auto RANGE = range_plain;
#endif

// From 2^15 elements for each thread: they take about 10 us.
bool run(const Job& job, int64_t count, int threads) {
    std::atomic<bool> clipped{false};
    share_out(count, threads, count >> 15, [&](int64_t first, int64_t last) {
        if (RANGE(job, first, last)) clipped = true;
    });
    return clipped;
}

}  // namespace

extern "C" {

// 1 if a value was clipped, else 0: then the gradient is the output's.
int dbq_round_forward(const float* x, int64_t count, float step, float low, float high, int threads,
                      float* out) {
    return run({Job::FORWARD, {step, low, high}, x, nullptr, out}, count, threads);
}

void dbq_round_backward(const float* x, int64_t count, float step, float low, float high, int threads,
                        const float* gradient, float* out) {
    run({Job::BACKWARD, {step, low, high}, x, gradient, out}, count, threads);
}

// What dbq_round_forward gave, as its codes (int8_t if `low` is negative, else uint8_t), and back, to the
// bit.
void dbq_codes_pack(const float* rounded, int64_t count, float step, float low, float high, int threads,
                    void* codes) {
    run({Job::PACK, {step, low, high}, rounded, nullptr, codes}, count, threads);
}

void dbq_codes_unpack(const void* codes, int64_t count, float step, float low, float high, int threads,
                      float* rounded) {
    run({Job::UNPACK, {step, low, high}, codes, nullptr, rounded}, count, threads);
}

}  // extern "C"
