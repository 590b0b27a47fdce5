/* === lookup: needs tensor === */
static void lookup(const tensor_t *to, const uint8_t *codes) {
    const uint32_t pixels = (uint32_t)to->height * to->width;
    for (uint32_t c = 0u; c < to->channels; c++) {
        uint8_t *plane = bytes_of(to, c);
        for (uint32_t p = 0u; p < pixels; p++) {
            plane[p] = codes[256u * c + image[p * to->channels + c]];
        }
    }
}

/* === add: needs finish, code at === */
static void add(const tensor_t *a, const tensor_t *b, const result_t *results, uint32_t count) {
    const uint32_t pixels = (uint32_t)a->height * a->width;
    for (uint32_t c = 0u; c < a->channels; c++) {
        for (uint32_t p = 0u; p < pixels; p++) {
            const int32_t s[2] = {code_at(a, c, p), code_at(b, c, p)};
            finish(results, count, c, p, s, 1u, 2u, 1u);
        }
    }
}

/* === requantize: needs finish, code at === */
static void requantize(const tensor_t *from, const result_t *results, uint32_t count) {
    const uint32_t pixels = (uint32_t)from->height * from->width;
    for (uint32_t c = 0u; c < from->channels; c++) {
        for (uint32_t p = 0u; p < pixels; p++) {
            const int32_t s = code_at(from, c, p);
            finish(results, count, c, p, &s, 1u, 1u, 1u);
        }
    }
}

/* === multiply: needs values, code at === */
/* b has the shape of a, or one pixel for each of its channels, or one channel of its size. */
static void multiply(const tensor_t *a, const tensor_t *b, const result_t *results, uint32_t count) {
    const uint32_t pixels = (uint32_t)a->height * a->width;
    const int has_one_pixel = b->height == 1u && b->width == 1u;
    for (uint32_t c = 0u; c < a->channels; c++) {
        for (uint32_t p = 0u; p < pixels; p++) {
            const int32_t x = code_at(a, c, p);
            const int32_t y = code_at(b, b->channels == 1u ? 0u : c, has_one_pixel != 0 ? 0u : p);
            const uint32_t v = times(float_of(x), float_of(y));
            for (uint32_t i = 0u; i < count; i++) {
                put_value(&results[i], c, p, v);
            }
        }
    }
}

/* === curve: needs values, code at === */
/* A function of straight segments; all numbers are bits of floats. */
typedef struct {
    const tensor_t *from;
    const result_t *results;
    const uint32_t *knots, *steps; /* the value at the start of each segment, and how much it rises */
    uint32_t scale, low, high, density;
    uint16_t segments;
    uint8_t results_count, is_product;
} curve_t;

static uint32_t curve_value(const curve_t *l, int32_t code) {
    const uint32_t x = times(float_of(code), l->scale);
    const uint32_t u = is_less(x, l->low) != 0 ? l->low : is_less(l->high, x) != 0 ? l->high : x;
    const uint32_t p = times(plus(u, l->low ^ 0x80000000u), l->density);
    int32_t i = integer_of(p);
    if (is_less(p, float_of(i)) != 0) {
        i--; /* floor */
    }
    i = i < (int32_t)l->segments ? i : (int32_t)l->segments - 1;
    const uint32_t f = plus(p, float_of(i) ^ 0x80000000u);
    const uint32_t g = plus(l->knots[i], times(f, l->steps[i]));
    return l->is_product != 0u ? times(x, g) : g;
}

static void curve(const curve_t *l) {
    const uint32_t pixels = (uint32_t)l->from->height * l->from->width;
    for (uint32_t c = 0u; c < l->from->channels; c++) {
        for (uint32_t p = 0u; p < pixels; p++) {
            const uint32_t v = curve_value(l, code_at(l->from, c, p));
            for (uint32_t i = 0u; i < l->results_count; i++) {
                put_value(&l->results[i], c, p, v);
            }
        }
    }
}
