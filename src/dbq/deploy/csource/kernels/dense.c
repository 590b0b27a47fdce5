/* === dense: needs finish, window === */
/* Fixed-point weights by multiplication. The inputs of up to four neighbouring output pixels are gathered
 * once, and every kernel is multiplied with all of them. Where the processor multiplies pairs of 16-bit
 * numbers, a word of four inputs becomes two: the first and the third, the second and the fourth. */
enum { AT_ONCE = 4 };

typedef struct {
    const tensor_t *from;   /* NULL: the image itself, whose channels are the innermost dimension */
    const uint8_t *codes;   /* of the pixels of the image, for each channel if `apart` is 256; NULL: themselves */
    const result_t *results;
    const int8_t *weights;  /* [group of channels][kernel][sum][taps, rounded up to four] */
    const int32_t *starts;  /* of each sum of a kernel, -128 times its weights; NULL: codes are not signed */
    uint32_t patch, pairs, sums_at;
    uint16_t apart, groups, kernels, channels, height, width; /* kernels and channels of one group */
    uint8_t sums, results_count;
    window_t window;
} dense_t;

/* `count` neighbouring inputs from place (y, x) on, of which those outside of the image are 0. */
static uint8_t *gather_places(const dense_t *l, const uint8_t *plane, int32_t y, int32_t x, uint8_t *to) {
    const uint32_t each = l->from != NULL ? 1u : l->channels; /* numbers at a place */
    for (uint32_t j = 0u; j < l->window.kernel_w; j++) {
        const int inside = y >= 0 && y < (int32_t)l->height && x >= 0 && x < (int32_t)l->width;
        const uint8_t *p = plane + (inside != 0 ? ((uint32_t)y * l->width + (uint32_t)x) * each : 0u);
        for (uint32_t c = 0u; c < each; c++) {
            *to = inside == 0 ? (uint8_t)0 : l->codes != NULL ? l->codes[l->apart * c + p[c]] : p[c];
            to++;
        }
        x += (int32_t)l->window.dilation_w;
    }
    return to;
}

APART static void gather_window(const dense_t *l, uint32_t group, uint32_t oy, uint32_t ox, uint8_t *to) {
    const window_t *w = &l->window;
    const uint32_t planes = l->from != NULL ? l->channels : 1u;
    const uint32_t run = l->from != NULL ? w->kernel_w : (uint32_t)w->kernel_w * l->channels;
    const int32_t x = (int32_t)(ox * w->stride_w) - (int32_t)w->left;
    const int is_run = x >= 0 && x + (int32_t)w->kernel_w <= (int32_t)l->width && w->dilation_w == 1u && l->apart == 0u;
    for (uint32_t c = 0u; c < planes; c++) {
        const uint8_t *plane = l->from != NULL ? bytes_of(l->from, group * l->channels + c) : IMAGE_PIXELS;
        for (uint32_t i = 0u; i < w->kernel_h; i++) {
            const int32_t y = (int32_t)(oy * w->stride_h + i * w->dilation_h) - (int32_t)w->top;
            if (is_run != 0 && y >= 0 && y < (int32_t)l->height) {
                const uint32_t place = (uint32_t)y * l->width + (uint32_t)x;
                const uint8_t *p = plane + (l->from != NULL ? place : place * l->channels);
                const uint8_t *codes = l->codes;
                for (uint32_t j = 0u; j < run; j++) {
                    to[j] = codes != NULL ? codes[p[j]] : p[j];
                }
                to += run;
            } else {
                to = gather_places(l, plane, y, x, to);
            }
        }
    }
}

#if defined(__ARM_FEATURE_SIMD32)
/* pairs[word][pixel][2] */
static void make_pairs(const uint32_t *words, uint32_t *pairs, uint32_t count, uint32_t pixels, uint32_t is_signed) {
    for (uint32_t p = 0u; p < pixels; p++) {
        uint32_t *to = pairs + 2u * p;
        for (uint32_t i = 0u; i < count; i++) {
            const uint32_t even = *words & 0x00FF00FFu;
            const uint32_t odd = (*words >> 8) & 0x00FF00FFu;
            to[0] = is_signed != 0u ? even + ((even >> 7) & 0x00010001u) * 0xFF00u : even;
            to[1] = is_signed != 0u ? odd + ((odd >> 7) & 0x00010001u) * 0xFF00u : odd;
            to += 2 * AT_ONCE;
            words++;
        }
    }
}

APART static void dot(const uint32_t *x, const int8_t *w, uint32_t words, int32_t *s, uint32_t pixels) {
    if (pixels == (uint32_t)AT_ONCE) {
        int32_t a = 0, b = 0, c = 0, d = 0;
        const uint32_t *end = x + 2u * (uint32_t)AT_ONCE * words;
        while (x != end) {
            uint32_t four;
            (void)memcpy(&four, w, sizeof four);
            w += 4;
            const int16x2_t even = __sxtb16((int8x4_t)four);
            const int16x2_t odd = __sxtb16((int8x4_t)((four >> 8) | (four << 24)));
            a = __smlad((int16x2_t)x[1], odd, __smlad((int16x2_t)x[0], even, a));
            b = __smlad((int16x2_t)x[3], odd, __smlad((int16x2_t)x[2], even, b));
            c = __smlad((int16x2_t)x[5], odd, __smlad((int16x2_t)x[4], even, c));
            d = __smlad((int16x2_t)x[7], odd, __smlad((int16x2_t)x[6], even, d));
            x += 2 * AT_ONCE;
        }
        s[0] = a;
        s[1] = b;
        s[2] = c;
        s[3] = d;
        return;
    }
    for (uint32_t p = 0u; p < pixels; p++) {
        int32_t a = 0;
        for (uint32_t i = 0u; i < words; i++) {
            uint32_t four;
            (void)memcpy(&four, w + 4u * i, sizeof four);
            const uint32_t *pair = x + 2u * ((uint32_t)AT_ONCE * i + p);
            a = __smlad((int16x2_t)pair[0], __sxtb16((int8x4_t)four), a);
            a = __smlad((int16x2_t)pair[1], __sxtb16((int8x4_t)((four >> 8) | (four << 24))), a);
        }
        s[p] = a;
    }
}
#else
/* Two pixels at a time, so that a weight is read once for both; of an odd number, the last one twice. The inputs of
 * signed codes are code + 128, and `start` takes that back. */
APART static void dot(const uint8_t *x, const int8_t *w, uint32_t taps, int32_t *s, uint32_t pixels, int32_t start) {
    const uint32_t size = (taps + 3u) / 4u * 4u;
    const int8_t *end = w + size; /* behind the taps, weights are 0 */
    for (uint32_t p = 0u; p < pixels; p += 2u) {
        const uint8_t *y = p + 1u < pixels ? x + size : x;
        int32_t a = start;
        int32_t b = start;
        for (const int8_t *v = w; v != end; v += 2) {
            a += PRODUCT((int32_t)x[0], (int32_t)v[0]) + PRODUCT((int32_t)x[1], (int32_t)v[1]);
            b += PRODUCT((int32_t)y[0], (int32_t)v[0]) + PRODUCT((int32_t)y[1], (int32_t)v[1]);
            x += 2;
            y += 2;
        }
        s[p] = a;
        if (p + 1u < pixels) {
            s[p + 1u] = b;
        }
        x += size;
    }
}
#endif

static void dense(const dense_t *l) {
    const tensor_t *to = l->results[0].to;
    const uint32_t taps = (uint32_t)l->channels * l->window.kernel_h * l->window.kernel_w;
    const uint32_t words = (taps + 3u) / 4u;
    uint32_t *patch = arena + l->patch / 4u;
    int32_t *s = (int32_t *)arena + l->sums_at / 4u;
    (void)memset(patch, 0, 4u * (uint32_t)AT_ONCE * words);
    for (uint32_t y = 0u; y < to->height; y++) {
        for (uint32_t x = 0u; x < to->width; x += (uint32_t)AT_ONCE) {
            const uint32_t count = to->width - x < (uint32_t)AT_ONCE ? to->width - x : (uint32_t)AT_ONCE;
            const int8_t *w = l->weights;
            for (uint32_t group = 0u; group < l->groups; group++) {
                for (uint32_t i = 0u; i < count; i++) {
                    gather_window(l, group, y, x + i, (uint8_t *)(patch + i * words));
                }
#if defined(__ARM_FEATURE_SIMD32)
                uint32_t *pairs = arena + l->pairs / 4u;
                make_pairs(patch, pairs, words, count, l->starts != NULL ? 1u : 0u);
#else
                for (uint32_t i = 0u; l->starts != NULL && i < count * words; i++) {
                    patch[i] ^= 0x80808080u;
                }
#endif
                for (uint32_t k = 0u; k < l->kernels; k++) {
                    for (uint32_t j = 0u; j < l->sums; j++) {
#if defined(__ARM_FEATURE_SIMD32)
                        dot(pairs, w, words, s + j * (uint32_t)AT_ONCE, count);
#else
                        const int32_t start = l->starts != NULL ? l->starts[(group * l->kernels + k) * l->sums + j] : 0;
                        dot((const uint8_t *)patch, w, taps, s + j * (uint32_t)AT_ONCE, count, start);
#endif
                        w += 4u * words;
                    }
                    finish(l->results, l->results_count, group * l->kernels + k, y * to->width + x, s, count,
                           l->sums, AT_ONCE);
                }
            }
        }
    }
}
