/* === pools: needs code at, window, result === */
/* Sums, means and maxima over windows. */
typedef struct {
    const tensor_t *from, *to;
    const result_t *results; /* of sums and means */
    uint8_t results_count, is_mean;
    window_t window;
} pool_t;

typedef struct {
    int32_t sum, largest;
    uint32_t count;
} seen_t;

static seen_t look(const pool_t *l, uint32_t c, uint32_t oy, uint32_t ox) {
    const window_t *w = &l->window;
    seen_t seen = {0, INT32_MIN, 0u};
    for (uint32_t i = 0u; i < w->kernel_h; i++) {
        const int32_t y = (int32_t)(oy * w->stride_h + i) - (int32_t)w->top;
        for (uint32_t j = 0u; j < w->kernel_w; j++) {
            const int32_t x = (int32_t)(ox * w->stride_w + j) - (int32_t)w->left;
            if (y >= 0 && y < (int32_t)l->from->height && x >= 0 && x < (int32_t)l->from->width) {
                const int32_t code = code_at(l->from, c, (uint32_t)y * l->from->width + (uint32_t)x);
                seen.sum += code;
                seen.largest = code > seen.largest ? code : seen.largest;
                seen.count++;
            }
        }
    }
    return seen;
}

/* === average pool: needs pools, finish === */
static void average_pool(const pool_t *l) {
    for (uint32_t c = 0u; c < l->to->channels; c++) {
        for (uint32_t y = 0u; y < l->to->height; y++) {
            for (uint32_t x = 0u; x < l->to->width; x++) {
                const int32_t sum = look(l, c, y, x).sum;
                finish(l->results, l->results_count, c, y * l->to->width + x, &sum, 1u, 1u, 1u);
            }
        }
    }
}

/* === mean pool: needs pools, values === */
/* a / b, rounded; b > 0 is a whole number below 2^16. */
static uint32_t divided(uint32_t a, uint32_t b) {
    const number_t x = number_of(a);
    const uint32_t zeros = leading_zeros(b) - 16u;
    const uint64_t digits = (uint64_t)x.digits << 28;
    const uint64_t quotient = digits / (b << zeros); /* below 2^45, and 2^43 at least */
    const uint32_t is_inexact = quotient * (b << zeros) != digits || (quotient & 0x1FFFu) != 0u ? 1u : 0u;
    return rounded(x.sign, (uint32_t)(quotient >> 13) | is_inexact, x.exponent - 15 + (int32_t)zeros);
}

static void mean_pool(const pool_t *l) {
    for (uint32_t c = 0u; c < l->to->channels; c++) {
        for (uint32_t y = 0u; y < l->to->height; y++) {
            for (uint32_t x = 0u; x < l->to->width; x++) {
                const seen_t seen = look(l, c, y, x);
                for (uint32_t i = 0u; i < l->results_count; i++) {
                    put_value(&l->results[i], c, y * l->to->width + x, divided(float_of(seen.sum), seen.count));
                }
            }
        }
    }
}

/* === max pool: needs pools, put code === */
static void max_pool(const pool_t *l) {
    for (uint32_t c = 0u; c < l->to->channels; c++) {
        for (uint32_t y = 0u; y < l->to->height; y++) {
            for (uint32_t x = 0u; x < l->to->width; x++) {
                put_code(l->to, c, y * l->to->width + x, look(l, c, y, x).largest);
            }
        }
    }
}
