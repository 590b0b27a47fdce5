// Rounding and clipping of activations, forward and backward, for float32 on a CPU.
//
// src/dbq/quantizers/rounding.py is the specification: the same float operations in the same order, so the
// same bits. What counts here is passes over memory: torch makes four forward and two
// backward, this makes one, and none backward where nothing was clipped.

#include <atomic>
#include <cstdint>

#include "train/parallel.h"
#include "train/vectors.h"

namespace {

using namespace dbq;

// Adding 1.5 * 2^23 rounds |x| < 2^22 to the nearest integer, halves to even. NaN stays NaN.
constexpr float ROUND = 12582912.0f;

struct Grid {
    float step, low, high;  // the smallest and the largest code
};

// What a call does with a range of elements: the backward pass if there is a gradient, else the forward pass.
struct Job {
    Grid grid;
    const float* x;
    const float* gradient;
    float* out;

    // True if a value was clipped.
    INLINE bool forward(int64_t first, int64_t last) const {
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

    INLINE void backward(int64_t first, int64_t last) const {
        const float clip = grid.high * grid.step;
        const bool is_signed = grid.low < 0;
        for (int64_t i = first; i < last; i += LANES) {
            const Floats value = load(x + i, last - i), G = load(gradient + i, last - i);
            Floats kept = value <= clip ? G : Floats{};
            if (is_signed) kept = value >= -clip ? kept : Floats{};
            store(out + i, last - i, kept);
        }
    }

    INLINE bool range(int64_t first, int64_t last) const {
        if (!gradient) return forward(first, last);
        backward(first, last);
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
    return run({{step, low, high}, x, nullptr, out}, count, threads);
}

void dbq_round_backward(const float* x, int64_t count, float step, float low, float high, int threads,
                        const float* gradient, float* out) {
    run({{step, low, high}, x, gradient, out}, count, threads);
}

}  // extern "C"
