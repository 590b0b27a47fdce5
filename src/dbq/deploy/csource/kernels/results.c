/* === product === */
/* A processor without a multiplier, and NAME_NO_MULTIPLIER, multiply by shifting and adding. */
#if defined(NAME_NO_MULTIPLIER) || (defined(__riscv) && !defined(__riscv_mul))
static int32_t PRODUCT(int32_t a, int32_t b) {
    uint32_t left = (uint32_t)a;
    uint32_t right = b < 0 ? 0u - (uint32_t)b : (uint32_t)b;
    uint32_t sum = 0u;
    while (right != 0u) {
        if ((right & 1u) != 0u) {
            sum += left;
        }
        left <<= 1;
        right >>= 1;
    }
    return (int32_t)(b < 0 ? 0u - sum : sum);
}
#else
#define PRODUCT(a, b) ((a) * (b))
#endif

/* === result: needs tensor === */
/* From sums to codes. With multipliers, a code is
 *     clamp((floor(s * m / 2^11) + b) >> n)
 * whose m, b and n were found and proven equal to the network's float formula, for every sum that
 * can occur, when this file was written; the few sums for which no line is right are listed. */
typedef struct {
    const tensor_t *to;
    const uint16_t *multipliers; /* of a channel: 3, 4 or 2 numbers, by form; NULL: use floats */
    const uint32_t *floats;      /* of a channel: the bits of each scale and of the offset */
    const uint16_t *odd_first;   /* channel -> first listed sum, or NULL */
    const int32_t *odd_sums;
    const int16_t *odd_codes;
    int32_t low, high; /* bits of floats, where there are no multipliers and is_wide is 0 */
    uint8_t form, has_clamp, is_shared; /* shared: all channels have the numbers of the first */
    uint8_t is_wide; /* 32-bit codes of one sum, which is below 2^24 */
} result_t;

/* === codes: needs result, product === */
#if defined(__ARM_ARCH_6M__) || defined(NAME_NO_MULTIPLIER) || (defined(__riscv) && !defined(__riscv_mul))
#define SMALL_PRODUCTS /* no instruction has a product of 64 bits */
#endif

typedef struct {
    int32_t m, b;
    uint32_t n;
} line_t;

static line_t line_of(const result_t *r, uint32_t k) {
    line_t line;
    const uint32_t size = r->form == 0u ? 3u : r->form == 1u ? 4u : 2u;
    const uint16_t *p = r->multipliers + (r->is_shared != 0u ? 0u : size * k);
    const uint32_t first = p[0] | ((uint32_t)p[1] << 16);
    line.n = first & 31u;
    if (r->form == 1u) {
        line.m = (int32_t)first >> 5;
        line.b = (int32_t)(p[2] | ((uint32_t)p[3] << 16));
    } else if (r->form == 0u) {
        line.m = (int32_t)(first << 6) >> 11;
        line.b = (int32_t)((uint32_t)(p[2] | ((first >> 26) << 16)) << 10) >> 10;
        line.b *= line.n > 13u ? 1 << (line.n - 13u) : 1;
    } else {
        line.m = ((int32_t)(first << 15) >> 20) * 512;
        line.b = (int32_t)first >> 17;
        line.b *= line.n > 5u ? 1 << (line.n - 5u) : 1;
    }
    return line;
}

#if defined(__GNUC__) && defined(__thumb2__) && defined(__ARM_FEATURE_SIMD32)
/* 2^bits * x, exactly: the file's writer has made sure. */
OPTIONAL static inline int32_t shifted(int32_t x, int32_t bits) {
    return bits >= 0 ? (int32_t)((uint32_t)x << (uint32_t)bits) : x >> (uint32_t)-bits;
}
#endif

#ifdef SMALL_PRODUCTS
/* The form of 4 bytes has an m of 11 bits times 2^9, so its code is (s * m + b) >> n in 32 bits. */
static inline void make_narrow(line_t *line) {
    line->m >>= 9;
    line->b = (int32_t)((uint32_t)line->b * 4u);
    line->n += 2u;
}

/* q, or the nearest code: most of them are inside. */
static inline uint32_t byte_of(int32_t q) {
    return (uint32_t)q <= 255u ? (uint32_t)q : ~(uint32_t)(q >> 31) & 255u;
}
#endif

/* floor(s * m / 2^11), |s| < 2^19, |m| < 2^21 */
static inline int32_t scaled(int32_t s, int32_t m) {
#ifdef SMALL_PRODUCTS
    return PRODUCT(s, m >> 11) + (PRODUCT(s, m & 2047) >> 11);
#else
    return (int32_t)(((int64_t)(s * 4096) * (m * 512)) >> 32);
#endif
}

static inline int32_t clamped(int32_t q, int32_t low, int32_t high) {
    return q < low ? low : q > high ? high : q;
}

static int32_t listed(const result_t *r, uint32_t k, int32_t s, int32_t q) {
    for (uint32_t i = r->odd_first[k]; i < r->odd_first[k + 1u]; i++) {
        if (r->odd_sums[i] == s) {
            return r->odd_codes[i];
        }
    }
    return q;
}

/* Codes of `count` sums of channel k, from `pixel` on. */
APART static void put_codes(const result_t *r, uint32_t k, uint32_t pixel, const int32_t *s, uint32_t count) {
    line_t line = line_of(r, k);
    uint8_t *to = bytes_of(r->to, k) + pixel;
#ifdef SMALL_PRODUCTS
    if (r->form == 2u && r->odd_first == NULL && r->low == 0 && r->high == 255) {
        make_narrow(&line);
        for (uint32_t i = 0u; i < count; i++) {
            to[i] = (uint8_t)byte_of((int32_t)((uint32_t)PRODUCT(s[i], line.m) + (uint32_t)line.b) >> line.n);
        }
        return;
    }
#endif
    if (r->odd_first != NULL && r->odd_first[k] != r->odd_first[k + 1u]) {
        for (uint32_t i = 0u; i < count; i++) {
            const int32_t q = clamped((scaled(s[i], line.m) + line.b) >> line.n, r->low, r->high);
            to[i] = (uint8_t)listed(r, k, s[i], q);
        }
    } else if (r->low == 0 && r->high == 255) {
        for (uint32_t i = 0u; i < count; i++) {
            to[i] = (uint8_t)clamped((scaled(s[i], line.m) + line.b) >> line.n, 0, 255);
        }
    } else {
        for (uint32_t i = 0u; i < count; i++) {
            to[i] = (uint8_t)clamped((scaled(s[i], line.m) + line.b) >> line.n, r->low, r->high);
        }
    }
}

/* === floats: needs result, wide, softfloat === */
/* The float formula itself, by integers: where codes are 32 bits wide, for outputs, and for several sums. */
static void put_float(const result_t *r, uint32_t k, uint32_t pixel, uint32_t t) {
    if (r->has_clamp != 0u) {
        const uint32_t low = (uint32_t)r->low;
        const uint32_t high = (uint32_t)r->high;
        t = is_less(t, low) != 0 ? low : is_less(high, t) != 0 ? high : t;
    }
    if (r->to->type == F32) {
        (void)memcpy(&output[r->to->at + k * r->to->plane + pixel], &t, sizeof t);
    } else if (r->to->type == I32) {
        words_of(r->to, k)[pixel] = integer_of(t);
    } else {
        bytes_of(r->to, k)[pixel] = (uint8_t)integer_of(t);
    }
}

/* === wide codes: needs floats, codes === */
/* Digits, of which bit 31 is set, rounded to the 24 of a float; their exponent may rise. */
static inline uint32_t shortened(uint32_t digits, int32_t *exponent) {
    const uint32_t more = digits + 127u + ((digits >> 8) & 1u);
    if (more < digits) {
        *exponent += 1;
        return 0x80000000u;
    }
    return more & ~255u;
}

/* 32-bit codes of `count` sums of channel k: the same steps as put_sums and put_float, in one function and without bits of
 * floats between them. Subnormal numbers need no care: what they are added to decides the code. */
APART static void put_wide(const result_t *r, uint32_t k, uint32_t pixel, const int32_t *s, uint32_t count) {
    const uint32_t *floats = r->floats + (r->is_shared != 0u ? 0u : 2u * k);
    const number_t scale = number_of(floats[0]);
    const number_t offset = number_of(floats[1]);
    const int32_t low = r->low;
    const int32_t high = r->high;
    int32_t *to = words_of(r->to, k) + pixel;
    for (uint32_t i = 0u; i < count; i++) {
        const uint32_t size = s[i] < 0 ? 0u - (uint32_t)s[i] : (uint32_t)s[i];
        const uint32_t zeros = leading_zeros(size | 1u);
        const uint64_t product = (uint64_t)(size << zeros) * scale.digits;
        uint32_t digits = (uint32_t)(product >> 32) | ((uint32_t)product != 0u ? 1u : 0u);
        uint32_t sign = scale.sign ^ ((uint32_t)s[i] >> 31);
        int32_t exponent = scale.exponent - (int32_t)zeros + 32;
        uint32_t other = 0u; /* the smaller one of the product and the offset */
        int32_t apart = 0;
        uint32_t is_difference = 0u;
        if (digits == 0u) {
            digits = offset.digits;
            exponent = offset.exponent;
            sign = offset.sign;
        } else {
            if ((digits >> 31) == 0u) {
                digits <<= 1;
                exponent--;
            }
            digits = shortened(digits, &exponent);
            is_difference = sign ^ offset.sign;
            other = offset.digits;
            apart = exponent - offset.exponent;
            if (apart < 0 || (apart == 0 && digits < other)) {
                other = digits;
                digits = offset.digits;
                exponent = offset.exponent;
                sign = offset.sign;
                apart = -apart;
            }
        }
        if (sign != 0u && low >= 0) { /* the larger one has the sign of the sum */
            to[i] = low;
            continue;
        }
        other = without(other >> 1, (uint32_t)apart);
        digits = is_difference != 0u ? (digits >> 1) - other : (digits >> 1) + other;
        uint32_t whole = 0u;
        if (digits != 0u) {
            const uint32_t shift = leading_zeros(digits);
            exponent += 1 - (int32_t)shift;
            digits = shortened(digits << shift, &exponent);
            if (exponent >= 0) {
                whole = 0x7FFFFFFFu; /* beyond all codes */
            } else if (exponent >= -32) {
                whole = nearest(digits, (uint32_t)-exponent);
            } else {
                whole = 0u;
            }
        }
        to[i] = clamped(sign != 0u ? -(int32_t)whole : (int32_t)whole, low, high);
    }
}

/* === sums: needs floats === */
/* code * scale, both floats: an integer below 2^24 is one as it is. */
APART static uint32_t scaled_float(int32_t code, uint32_t scale) {
    number_t x;
    const uint32_t size = code < 0 ? 0u - (uint32_t)code : (uint32_t)code;
    if ((size >> 24) != 0u) {
        x = number_of(float_of(code));
    } else {
        const uint32_t zeros = leading_zeros(size | 1u);
        x.sign = (uint32_t)code >> 31;
        x.digits = size << zeros;
        x.exponent = -(int32_t)zeros;
    }
    return product_of(x, number_of(scale));
}

static void put_sums(const result_t *r, uint32_t k, uint32_t pixel, const int32_t *s, uint32_t sums,
                     uint32_t stride) {
    const uint32_t *f = r->floats + (r->is_shared != 0u ? 0u : (sums + 1u) * k);
    uint32_t t = scaled_float(s[0], f[0]);
    for (uint32_t j = 1u; j < sums; j++) {
        t = plus(t, scaled_float(s[j * stride], f[j]));
    }
    put_float(r, k, pixel, plus(t, f[sums]));
}

/* === finish: needs codes, sums, wide codes === */
/* All results of an operation; s[j * stride + i] is sum j of pixel `pixel + i`. */
static void finish(const result_t *results, uint32_t count, uint32_t k, uint32_t pixel, const int32_t *s,
                   uint32_t pixels, uint32_t sums, uint32_t stride) {
    for (uint32_t i = 0u; i < count; i++) {
        const result_t *r = &results[i];
        if (r->multipliers != NULL) {
            put_codes(r, k, pixel, s, pixels);
        } else if (r->is_wide != 0u) {
            put_wide(r, k, pixel, s, pixels);
        } else {
            for (uint32_t p = 0u; p < pixels; p++) {
                put_sums(r, k, pixel + p, s + p, sums, stride);
            }
        }
    }
}

/* === values: needs floats === */
static uint32_t times(uint32_t a, uint32_t b) {
    return product_of(number_of(a), number_of(b));
}

static void put_value(const result_t *r, uint32_t k, uint32_t pixel, uint32_t v) {
    const uint32_t *f = r->floats + (r->is_shared != 0u ? 0u : 2u * k);
    put_float(r, k, pixel, plus(times(v, f[0]), f[1]));
}
