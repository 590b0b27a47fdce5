/* === depthwise: needs finish, window === */
/* Each output channel reads one input channel, which is copied with its padding first: so the output
 * may take the place of the input. */
typedef struct {
    const tensor_t *from;
    const result_t *results;
    const int8_t *weights;    /* [sum][kernel][rows x columns] */
    uint32_t padded, sums_at; /* where the padded plane and a row of sums live in the arena */
    uint16_t rows, columns;   /* of the padded plane */
    uint16_t at_once;         /* rows whose sums are kept before they become codes */
    uint16_t per_channel;     /* output channels that read one input channel */
    uint8_t sums, results_count;
    window_t window;
} depthwise_t;

/* Rows are short and begin anywhere: a call of memcpy would cost more than it copies. */
static void copy_row(uint8_t *to, const uint8_t *from, uint32_t count) {
    const uint8_t *end = from + (count & ~3u);
    while (from != end) {
#if defined(__ARM_FEATURE_UNALIGNED)
        uint32_t four;
        (void)memcpy(&four, from, sizeof four);
        (void)memcpy(to, &four, sizeof four);
#else
        to[0] = from[0];
        to[1] = from[1];
        to[2] = from[2];
        to[3] = from[3];
#endif
        from += 4;
        to += 4;
    }
    for (uint32_t i = 0u; i < (count & 3u); i++) {
        to[i] = from[i];
    }
}

static void pad_plane(const depthwise_t *l, const uint8_t *plane, uint8_t *padded, uint32_t flip) {
    const uint32_t height = l->from->height;
    const uint32_t width = l->from->width;
    const uint32_t wide = l->columns - (uint32_t)l->window.left; /* columns behind the padding */
    const uint32_t used = width < wide ? width : wide;
    for (uint32_t y = 0u; y < height && y + l->window.top < l->rows; y++) {
        uint8_t *row = padded + (y + l->window.top) * l->columns + l->window.left;
        copy_row(row, plane + y * width, used);
        if (flip != 0u) {
            for (uint32_t x = 0u; x < used; x++) {
                row[x] ^= 128u;
            }
        }
    }
}

static int32_t window_sum(const uint8_t *p, const int8_t *weights, const depthwise_t *l) {
    int32_t sum = 0;
    for (uint32_t y = 0u; y < l->window.kernel_h; y++) {
        for (uint32_t x = 0u; x < l->window.kernel_w; x++) {
            sum += PRODUCT((int32_t)p[x * l->window.dilation_w], (int32_t)weights[x]);
        }
        p += (uint32_t)l->window.dilation_h * l->columns;
        weights += l->window.kernel_w;
    }
    return sum;
}

/* A row of sums of 3x3 windows. */
#if defined(__ARM_FEATURE_SIMD32)
/* Four pixels of a row are two pairs, (0, 2) and (1, 3): enough for two neighbouring windows. */
static inline uint32_t four_at(const uint8_t *p) {
    uint32_t four;
    (void)memcpy(&four, p, sizeof four);
    return four;
}

static inline int16x2_t outer_pair(const int8_t *w) {
    return (int16x2_t)(((uint32_t)(int32_t)w[0] & 0xFFFFu) | ((uint32_t)(int32_t)w[2] << 16));
}

/* Adds a row of the window to the sums a and b of two neighbours. */
#define ADD_LINE(line, outer, middle, half) \
    do { \
        const uint32_t four = four_at(line); \
        const uint32_t even = four & 0x00FF00FFu; \
        const uint32_t odd = (four >> 8) & 0x00FF00FFu; \
        a = __smlab##half((int32_t)odd, middle, __smlad((int16x2_t)even, outer, a)); \
        b = __smlat##half((int32_t)even, middle, __smlad((int16x2_t)odd, outer, b)); \
    } while (0)

/* May write one sum more than `count`. */
APART static void neighbours(const uint8_t *p, const int8_t *w, int32_t start, int32_t *s, uint32_t count,
                             uint32_t columns) {
    const int16x2_t top = outer_pair(w);
    const int16x2_t centre = outer_pair(w + 3);
    const int16x2_t bottom = outer_pair(w + 6);
    const int32_t upper = (int32_t)(((uint32_t)(int32_t)w[1] & 0xFFFFu) | ((uint32_t)(int32_t)w[4] << 16));
    const int32_t lower = w[7];
    const int32_t *end = s + count;
    while (s < end) {
        int32_t a = start;
        int32_t b = start;
        ADD_LINE(p, top, upper, b);
        ADD_LINE(p + columns, centre, upper, t);
        ADD_LINE(p + 2u * columns, bottom, lower, b);
        *s++ = a;
        *s++ = b;
        p += 2;
    }
}
#endif

APART static void three_by_three(const uint8_t *p, const int8_t *w, int32_t start, int32_t *s, uint32_t count,
                                 uint32_t columns, uint32_t stride) {
    const int32_t a = w[0], b = w[1], c = w[2], d = w[3], e = w[4], f = w[5], g = w[6], h = w[7], i = w[8];
    const uint8_t *q = p + columns;
    const uint8_t *r = q + columns;
    for (uint32_t x = 0u; x < count; x++) {
        s[x] = start + PRODUCT((int32_t)p[0], a) + PRODUCT((int32_t)p[1], b) + PRODUCT((int32_t)p[2], c) +
               PRODUCT((int32_t)q[0], d) + PRODUCT((int32_t)q[1], e) + PRODUCT((int32_t)q[2], f) +
               PRODUCT((int32_t)r[0], g) + PRODUCT((int32_t)r[1], h) + PRODUCT((int32_t)r[2], i);
        p += stride;
        q += stride;
        r += stride;
    }
}

static int32_t start_of(const int8_t *w, uint32_t area, uint32_t flip) {
    int32_t sum = 0;
    for (uint32_t i = 0u; flip != 0u && i < area; i++) {
        sum -= (int32_t)w[i];
    }
    return PRODUCT(sum, (int32_t)flip);
}

/* Sums of output rows y .. y + count - 1 of channel k. */
static void sum_windows(const depthwise_t *l, uint32_t k, uint32_t y, uint32_t count, uint32_t flip) {
    const tensor_t *to = l->results[0].to;
    const uint32_t area = (uint32_t)l->window.kernel_h * l->window.kernel_w;
    const int is_small = l->window.kernel_h == 3u && l->window.kernel_w == 3u && l->window.dilation_h == 1u &&
                         l->window.dilation_w == 1u;
    int32_t *s = (int32_t *)arena + l->sums_at / 4u;
    for (uint32_t j = 0u; j < l->sums; j++) {
        const int8_t *w = l->weights + (j * to->channels + k) * area;
        const int32_t start = start_of(w, area, flip);
        const uint8_t *line = (uint8_t *)arena + l->padded + y * l->window.stride_h * l->columns;
        for (uint32_t i = 0u; i < count; i++) {
#if defined(__ARM_FEATURE_SIMD32)
            if (is_small != 0 && l->window.stride_w == 1u) {
                neighbours(line, w, start, s, to->width, l->columns);
            } else
#endif
            if (is_small != 0) {
                three_by_three(line, w, start, s, to->width, l->columns, l->window.stride_w);
            } else {
                for (uint32_t x = 0u; x < to->width; x++) {
                    s[x] = start + window_sum(line + x * l->window.stride_w, w, l);
                }
            }
            s += to->width;
            line += (uint32_t)l->window.stride_h * l->columns;
        }
    }
}

static void depthwise(const depthwise_t *l) {
    const tensor_t *to = l->results[0].to;
    const uint32_t flip = l->from->type == I8 ? 128u : 0u; /* signed codes are read as code + 128 */
    int32_t *s = (int32_t *)arena + l->sums_at / 4u;
    /* The padding stays what it is for all channels. */
    (void)memset((uint8_t *)arena + l->padded, (int)flip, (uint32_t)l->rows * l->columns);
    for (uint32_t k = 0u; k < to->channels; k++) {
        if (k % l->per_channel == 0u) {
            pad_plane(l, bytes_of(l->from, k / l->per_channel), (uint8_t *)arena + l->padded, flip);
        }
        for (uint32_t y = 0u; y < to->height; y += l->at_once) {
            const uint32_t rest = to->height - y;
            const uint32_t count = rest < l->at_once ? rest : l->at_once;
            sum_windows(l, k, y, count, flip);
            finish(l->results, l->results_count, k, y * to->width, s, count * to->width, l->sums,
                   count * to->width);
        }
    }
}
