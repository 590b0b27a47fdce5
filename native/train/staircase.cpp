// The soft staircase of the branch quantizer and its gradients, for float32 on a CPU.
//
// Does in one call what src/dbq/quantizers/dbq/staircase.py does in some seventy torch calls; that file
// is the specification, and the tests compare the two. It exists because layers of small networks have a few
// thousand weights, for which the calls cost more than the arithmetic.
//
// All arrays are dense, row-major, with one row per kernel: w, z, grad, d_w are K x D; alpha K x B;
// t K x (N-1); gamma_1, gamma_2 K; level_codes N x B with N = 3^B and B <= 3.

#include <cstdint>
#include <cstring>

#include "train/parallel.h"
#include "train/vectors.h"

namespace {

using namespace dbq;

constexpr int MAX_BRANCHES = 3, MAX_LEVELS = 27;

// sigmoid(x) = 1 / (1 + e^-x). e^y = 2^n p(r) with y = n ln 2 + r, |r| <= ln 2 / 2: p is the Taylor
// polynomial of degree 7, whose remainder is below 2^-27 of e^r. Relative error about 2 ulp.
INLINE Floats sigmoid(Floats x) {
    const Floats limit = Floats{} + 87.0f;  // e^87 < FLT_MAX; beyond it the result is 0 or 1 anyway
    Floats y = -x;
    y = y > limit ? limit : y;
    y = y < -limit ? -limit : y;
    // Adding 1.5 * 2^23 rounds to an integer and leaves it in the low bits.
    const Floats magic = Floats{} + 12582912.0f;
    const Floats shifted = y * 1.44269504088896341f + magic;
    const Floats n = shifted - magic;
    const Floats r = (y - n * 0.693359375f) + n * 2.12194440e-4f;  // ln 2 in two parts
    Floats p = Floats{} + 1.0f / 5040;
    p = p * r + 1.0f / 720;
    p = p * r + 1.0f / 120;
    p = p * r + 1.0f / 24;
    p = p * r + 1.0f / 6;
    p = p * r + 0.5f;
    p = p * r + 1.0f;
    p = p * r + 1.0f;
    const Ints exponent = ((Ints)shifted - (Ints)magic + 127) << 23;
    return 1.0f / (1.0f + p * (Floats)exponent);
}

INLINE float total(Floats x) {
    float sum = 0;
    for (int lane = 0; lane < LANES; ++lane) sum += x[lane];
    return sum;
}

// The parameters of one kernel, sorted, and the positions they came from.
struct Kernel {
    int branches, levels;
    float alpha[MAX_BRANCHES], t[MAX_LEVELS - 1], level[MAX_LEVELS];
    int alpha_from[MAX_BRANCHES], t_from[MAX_LEVELS - 1], level_from[MAX_LEVELS];
};

template <class Before> INLINE void stable_order(int* order, int n, Before before) {
    for (int i = 0; i < n; ++i) {  // insertion sort: n <= 27
        int j = i;
        for (; j > 0 && before(i, order[j - 1]); --j) order[j] = order[j - 1];
        order[j] = i;
    }
}

INLINE Kernel sorted_kernel(const float* alpha, const float* t, const int8_t* codes, int branches,
                            int levels) {
    Kernel k;
    k.branches = branches;
    k.levels = levels;
    float size[MAX_BRANCHES], value[MAX_LEVELS];
    for (int j = 0; j < branches; ++j) size[j] = alpha[j] < 0 ? -alpha[j] : alpha[j];
    stable_order(k.alpha_from, branches, [&](int a, int b) { return size[a] > size[b]; });
    for (int j = 0; j < branches; ++j) k.alpha[j] = size[k.alpha_from[j]];
    for (int i = 0; i < levels; ++i) {
        value[i] = codes[i * branches] * k.alpha[0];
        for (int j = 1; j < branches; ++j) value[i] += codes[i * branches + j] * k.alpha[j];
    }
    stable_order(k.level_from, levels, [&](int a, int b) { return value[a] < value[b]; });
    for (int i = 0; i < levels; ++i) k.level[i] = value[k.level_from[i]];
    stable_order(k.t_from, levels - 1, [&](int a, int b) { return t[a] < t[b]; });
    for (int i = 0; i + 1 < levels; ++i) k.t[i] = t[k.t_from[i]];
    return k;
}

struct Layer {
    const float *w, *alpha, *gamma_1, *gamma_2, *t;
    const int8_t* codes;
    float temperature;
    int64_t length;  // D
    int branches, levels;

    INLINE Kernel kernel(int64_t k) const {
        return sorted_kernel(alpha + k * branches, t + k * (levels - 1), codes, branches, levels);
    }
};

INLINE void forward(const Layer& layer, float* z, int64_t first, int64_t last) {
    const int64_t length = layer.length;
    for (int64_t row = first; row < last; ++row) {
        const Kernel k = layer.kernel(row);
        const float slope = layer.temperature * layer.gamma_1[row], gamma_2 = layer.gamma_2[row];
        const float* w = layer.w + row * length;
        float* out = z + row * length;
        for (int64_t d = 0; d < length; d += LANES) {
            const Floats u = load(w + d, length - d) * slope;
            Floats sum = Floats{} + gamma_2 * k.level[0];
            for (int i = 0; i + 1 < k.levels; ++i)
                sum += sigmoid(u - layer.temperature * k.t[i]) * (gamma_2 * (k.level[i + 1] - k.level[i]));
            store(out + d, length - d, sum);
        }
    }
}

struct Gradients {
    float *w, *alpha, *gamma_1, *gamma_2, *t;
};

INLINE void backward(const Layer& layer, const float* grad, const Gradients& out, int64_t first,
                     int64_t last) {
    const int64_t length = layer.length;
    for (int64_t row = first; row < last; ++row) {
        const Kernel k = layer.kernel(row);
        const int steps = k.levels - 1;
        const float T = layer.temperature, slope = T * layer.gamma_1[row], gamma_2 = layer.gamma_2[row];
        const float *w = layer.w + row * length, *G_row = grad + row * length;
        float* d_w = out.w + row * length;

        Floats sum_G = {}, sum_qw = {};                                 // sum_k G; sum_k G w sum_i c_i h
        Floats sum_g[MAX_LEVELS - 1] = {}, sum_h[MAX_LEVELS - 1] = {};  // sum_k G g_i; sum_k G h_i
        for (int64_t d = 0; d < length; d += LANES) {
            const Floats x = load(w + d, length - d), u = x * slope;
            const Floats G = load(G_row + d, length - d);  // 0 beyond the end: nothing is added
            Floats q = {};                                 // G sum_i c_i h_i
            for (int i = 0; i < steps; ++i) {
                const Floats g = sigmoid(u - T * k.t[i]), p = G * g, h = p - p * g;
                sum_g[i] += p;
                sum_h[i] += h;
                q += h * (k.level[i + 1] - k.level[i]);
            }
            sum_G += G;
            sum_qw += q * x;
            q *= slope * gamma_2;
            store(d_w + d, length - d, q);
        }

        const int8_t* code = layer.codes + k.level_from[0] * k.branches;  // e_1
        const float all = total(sum_G);
        float d_alpha[MAX_BRANCHES], d_gamma_2 = k.level[0] * all;
        for (int j = 0; j < k.branches; ++j) d_alpha[j] = code[j] * all;
        for (int i = 0; i < steps; ++i) {
            const int8_t* next = layer.codes + k.level_from[i + 1] * k.branches;
            const float c = k.level[i + 1] - k.level[i], s = total(sum_g[i]);
            for (int j = 0; j < k.branches; ++j) d_alpha[j] += (next[j] - code[j]) * s;  // b_ij
            d_gamma_2 += c * s;
            out.t[row * steps + k.t_from[i]] = -gamma_2 * T * c * total(sum_h[i]);
            code = next;
        }
        for (int j = 0; j < k.branches; ++j) {
            const int64_t at = row * k.branches + k.alpha_from[j];
            const float sign = layer.alpha[at] > 0 ? 1.0f : layer.alpha[at] < 0 ? -1.0f : 0.0f;
            out.alpha[at] = gamma_2 * d_alpha[j] * sign;
        }
        out.gamma_1[row] = gamma_2 * T * total(sum_qw);
        out.gamma_2[row] = d_gamma_2;
    }
}

// What a call computes: z, or with `grad` the gradients.
struct Job {
    Layer layer;
    float* z;
    const float* grad;
    Gradients gradients;

    INLINE void rows(int64_t first, int64_t last) const {
        grad ? backward(layer, grad, gradients, first, last) : forward(layer, z, first, last);
    }
};

// The same code compiled three times for x86: with AVX-512, the vectors above are single registers.
void rows_plain(const Job& job, int64_t first, int64_t last) { job.rows(first, last); }
#ifdef __x86_64__
__attribute__((target("avx2,fma"))) void rows_avx2(const Job& job, int64_t first, int64_t last) {
    job.rows(first, last);
}
__attribute__((target("avx512f,avx512dq"))) void rows_avx512(const Job& job, int64_t first, int64_t last) {
    job.rows(first, last);
}
const auto ROWS = __builtin_cpu_supports("avx512dq")                                ? rows_avx512
                  : __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") ? rows_avx2
                                                                                    : rows_plain;
#else
const auto ROWS = rows_plain;
#endif

// Rows over threads, from 2^15 sigmoids for each, which take 20 us.
void run(const Job& job, int64_t rows, int threads) {
    const int64_t sigmoids = rows * job.layer.length * (job.layer.levels - 1);
    share_out(rows, threads, sigmoids >> 15, [&](int64_t first, int64_t last) { ROWS(job, first, last); });
}

}  // namespace

extern "C" {

void dbq_staircase_forward(const float* w, const float* alpha, const float* gamma_1, const float* gamma_2,
                           const float* t, const int8_t* level_codes, float temperature, int64_t kernels,
                           int64_t length, int branches, int levels, int threads, float* z) {
    const Layer layer{w, alpha, gamma_1, gamma_2, t, level_codes, temperature, length, branches, levels};
    run({layer, z, nullptr, {}}, kernels, threads);
}

void dbq_staircase_backward(const float* w, const float* alpha, const float* gamma_1, const float* gamma_2,
                            const float* t, const int8_t* level_codes, float temperature, int64_t kernels,
                            int64_t length, int branches, int levels, int threads, const float* grad,
                            float* d_w, float* d_alpha, float* d_gamma_1, float* d_gamma_2, float* d_t) {
    const Layer layer{w, alpha, gamma_1, gamma_2, t, level_codes, temperature, length, branches, levels};
    run({layer, nullptr, grad, {d_w, d_alpha, d_gamma_1, d_gamma_2, d_t}}, kernels, threads);
}

}  // extern "C"
