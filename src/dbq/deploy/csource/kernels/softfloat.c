/* === softfloat === */
/* IEEE 754 binary32 by integers, rounding to nearest even: the same bits on every machine. */
typedef struct {
    uint32_t sign; /* 0 or 1 */
    int32_t exponent;
    uint32_t digits; /* the value is +-digits * 2^exponent; bit 31 is set, unless it is 0 */
} number_t;

/* Of a word that is not 0. */
static inline uint32_t leading_zeros(uint32_t word) {
#if defined(__GNUC__)
    return (uint32_t)__builtin_clz(word);
#else
    uint32_t zeros = 0u;
    for (uint32_t step = 16u; step != 0u; step >>= 1) {
        if ((word >> (32u - step)) == 0u) {
            zeros += step;
            word <<= step;
        }
    }
    return zeros;
#endif
}

static inline number_t number_of(uint32_t bits) {
    number_t n;
    const uint32_t biased = (bits >> 23) & 255u;
    n.sign = bits >> 31;
    n.digits = (bits << 8) | 0x80000000u;
    n.exponent = (int32_t)biased - 158;
    if (biased == 0u) {
        n.digits = bits << 9;
        n.exponent = -1000; /* zero: far below all others */
        if (n.digits != 0u) {
            const uint32_t zeros = leading_zeros(n.digits);
            n.digits <<= zeros;
            n.exponent = -158 - (int32_t)zeros;
        }
    }
    return n;
}

/* The upper part of a word, `cut` bits shorter; the last bit is set if a bit that is gone was. */
static inline uint32_t without(uint32_t digits, uint32_t cut) {
    if (cut == 0u) {
        return digits;
    }
    return cut < 32u ? (digits >> cut) | ((digits << (32u - cut)) != 0u ? 1u : 0u) : digits != 0u ? 1u : 0u;
}

/* digits * 2^exponent, rounded. A last bit that stands for lost ones comes with a 1 among the first seven bits. */
static inline uint32_t rounded(uint32_t sign, uint32_t digits, int32_t exponent) {
    if (digits == 0u) {
        return sign << 31;
    }
    const uint32_t zeros = leading_zeros(digits);
    int32_t biased = exponent - (int32_t)zeros + 158;
    digits <<= zeros;
    if (biased <= 0) {
        digits = without(digits, (uint32_t)(1 - biased)); /* subnormal: fewer digits */
        biased = 1;
    }
    uint32_t kept = digits >> 8;
    kept += (digits & 255u) + (kept & 1u) > 128u ? 1u : 0u;
    /* A leading digit adds one to the exponent, and 2^24 is the next power of two: no cases of their own. */
    return (sign << 31) + (((uint32_t)biased - 1u) << 23) + kept;
}

static uint32_t float_of(int32_t code) {
    return rounded(code < 0 ? 1u : 0u, code < 0 ? 0u - (uint32_t)code : (uint32_t)code, 0);
}

static inline uint32_t product_of(number_t x, number_t y) {
    const uint64_t product = (uint64_t)x.digits * y.digits;
    const uint32_t digits = (uint32_t)(product >> 32) | ((uint32_t)product != 0u ? 1u : 0u);
    return rounded(x.sign ^ y.sign, digits, x.exponent + y.exponent + 32);
}

static uint32_t plus(uint32_t a, uint32_t b) {
    const uint32_t is_swapped = (a << 1) < (b << 1) ? 1u : 0u;
    const number_t x = number_of(is_swapped != 0u ? b : a); /* the larger one */
    const number_t y = number_of(is_swapped != 0u ? a : b);
    /* The last bits of both are 0, so that one bit is free for a carry. */
    const uint32_t other = without(y.digits >> 1, (uint32_t)(x.exponent - y.exponent));
    if (x.sign == y.sign) {
        return rounded(x.sign, (x.digits >> 1) + other, x.exponent + 1);
    }
    const uint32_t digits = (x.digits >> 1) - other;
    return digits == 0u ? 0u : rounded(x.sign, digits, x.exponent + 1); /* +0, as IEEE 754 has it */
}

static inline int is_less(uint32_t a, uint32_t b) {
    if (((a | b) << 1) == 0u) {
        return 0; /* -0 is not less than +0 */
    }
    const uint32_t x = (a >> 31) != 0u ? ~a : a | 0x80000000u;
    const uint32_t y = (b >> 31) != 0u ? ~b : b | 0x80000000u;
    return x < y ? 1 : 0;
}

/* digits / 2^cut, the nearest integer, the even one of two; cut is 1 .. 32. */
static inline uint32_t nearest(uint32_t digits, uint32_t cut) {
    const uint32_t whole = cut < 32u ? digits >> cut : 0u;
    const uint32_t rest = digits << (32u - cut);
    return whole + (rest > 0x80000000u || (rest == 0x80000000u && (whole & 1u) != 0u) ? 1u : 0u);
}

/* The nearest integer; for sizes below 2^31. */
static int32_t integer_of(uint32_t bits) {
    const number_t x = number_of(bits);
    const uint32_t whole = x.exponent >= -32 ? nearest(x.digits, (uint32_t)-x.exponent) : 0u;
    return x.sign != 0u ? -(int32_t)whole : (int32_t)whole;
}
