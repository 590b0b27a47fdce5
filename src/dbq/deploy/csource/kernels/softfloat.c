/* === softfloat === */
/* IEEE 754 binary32 by integers, rounding to nearest even: the same bits on every machine. */
typedef struct {
    uint32_t sign; /* 0 or 1 */
    int32_t exponent;
    uint32_t digits; /* the value is +-digits * 2^exponent */
} number_t;

static number_t number_of(uint32_t bits) {
    number_t n;
    const uint32_t biased = (bits >> 23) & 255u;
    n.sign = bits >> 31;
    n.digits = (bits & 0x7FFFFFu) | (biased != 0u ? 0x800000u : 0u);
    n.exponent = (int32_t)(biased != 0u ? biased : 1u) - 150;
    return n;
}

static uint32_t length_of(uint64_t digits) {
#if defined(__GNUC__)
    return digits == 0u ? 0u : 64u - (uint32_t)__builtin_clzll(digits);
#else
    uint32_t length = 0u;
    uint32_t rest = (uint32_t)digits;
    if ((digits >> 32) != 0u) {
        length = 32u;
        rest = (uint32_t)(digits >> 32);
    }
    for (uint32_t step = 16u; step != 0u; step >>= 1) {
        if ((rest >> step) != 0u) {
            length += step;
            rest >>= step;
        }
    }
    return length + rest;
#endif
}

/* digits * 2^exponent, rounded; digits < 2^63. */
static uint32_t rounded(uint32_t sign, uint64_t digits, int32_t exponent) {
    if (digits == 0u) {
        return sign << 31;
    }
    int32_t cut = (int32_t)length_of(digits) - 24;
    if (exponent + cut < -149) {
        cut = -149 - exponent; /* subnormal: fewer digits */
    }
    uint32_t kept;
    if (cut <= 0) {
        kept = (uint32_t)(digits << (uint32_t)-cut);
    } else if (cut > 62) {
        kept = 0u; /* less than half of the smallest number */
    } else {
        const uint64_t half = (uint64_t)1 << ((uint32_t)cut - 1u);
        const uint64_t rest = digits & (half + half - 1u);
        kept = (uint32_t)(digits >> (uint32_t)cut);
        if (rest > half || (rest == half && (kept & 1u) != 0u)) {
            kept += 1u; /* 2^24 becomes the next power of two by itself, below */
        }
    }
    const uint32_t biased = (uint32_t)(exponent + cut + 150);
    /* A leading digit adds one to the exponent, so a subnormal number needs no case of its own. */
    return (sign << 31) + ((biased - 1u) << 23) + kept;
}

static uint32_t float_of(int32_t code) {
    const uint32_t sign = code < 0 ? 1u : 0u;
    const uint32_t size = sign != 0u ? 0u - (uint32_t)code : (uint32_t)code;
    if (size == 0u || (size >> 24) != 0u) {
        return rounded(sign, size, 0);
    }
    const uint32_t shift = 24u - length_of(size); /* nothing to round */
    return (sign << 31) + ((149u - shift) << 23) + (size << shift);
}

static uint32_t times(uint32_t a, uint32_t b) {
    const number_t x = number_of(a);
    const number_t y = number_of(b);
    return rounded(x.sign ^ y.sign, (uint64_t)x.digits * y.digits, x.exponent + y.exponent);
}

static uint32_t plus(uint32_t a, uint32_t b) {
    number_t x = number_of(a);
    number_t y = number_of(b);
    if (x.exponent < y.exponent) {
        const number_t swap = x;
        x = y;
        y = swap;
    }
    uint32_t apart = (uint32_t)(x.exponent - y.exponent);
    uint64_t other = y.digits;
    if (apart > 36u) {
        apart = 30u; /* y only says on which side of x the sum lies */
        other = other != 0u ? 1u : 0u;
    }
    const uint64_t digits = (uint64_t)x.digits << apart;
    const int32_t exponent = x.exponent - (int32_t)apart;
    if (x.sign == y.sign) {
        return rounded(x.sign, digits + other, exponent);
    }
    if (digits == other) {
        return 0u; /* +0, as IEEE 754 has it */
    }
    return digits > other ? rounded(x.sign, digits - other, exponent)
                          : rounded(y.sign, other - digits, exponent);
}

static int is_less(uint32_t a, uint32_t b) {
    if (((a | b) << 1) == 0u) {
        return 0; /* -0 is not less than +0 */
    }
    const uint32_t x = (a >> 31) != 0u ? ~a : a | 0x80000000u;
    const uint32_t y = (b >> 31) != 0u ? ~b : b | 0x80000000u;
    return x < y;
}

/* The nearest integer, the even one of two; for sizes below 2^31. */
static int32_t integer_of(uint32_t bits) {
    const number_t x = number_of(bits);
    uint32_t whole = 0u;
    if (x.exponent >= 0) {
        whole = x.digits << (uint32_t)x.exponent;
    } else if (x.exponent >= -24) {
        const uint32_t cut = (uint32_t)-x.exponent;
        const uint32_t half = (uint32_t)1 << (cut - 1u);
        const uint32_t rest = x.digits & (half + half - 1u);
        whole = x.digits >> cut;
        if (rest > half || (rest == half && (whole & 1u) != 0u)) {
            whole += 1u;
        }
    } else {
        whole = 0u;
    }
    return x.sign != 0u ? -(int32_t)whole : (int32_t)whole;
}
