/* === pairs: needs finish === */
/* Products of pairs, where one instruction multiplies two 16-bit numbers by two others and adds both
 * products: three pixels times two kernels at a time, which is what the registers hold. A word of weights is a pair,
 * multiplied by 2^12 together with its inputs, so that the upper half of one more product is the scaled sum. */
#if defined(__GNUC__) && defined(__thumb2__) && defined(__ARM_FEATURE_SIMD32)
#define HAS_PAIRS
enum { BLOCK = 3, POINT = 11 }; /* pixels of a block; bits behind the point of a scaled sum */

typedef struct {
    uint8_t *to_a;
    int32_t m_a, b_a, m_b, b_b;
    uint8_t *to_b;
    uint32_t has_sums; /* the sums themselves are stored, as words, times 2^12 */
    uint32_t zeros[6]; /* what sums begin with */
    uint32_t skip;     /* bytes of code to skip: the loop is entered in its middle */
    const uint32_t *weights, *behind; /* [pair][kernel a, kernel b] */
} pairs_t;

#define PAIR "ldmia r0!, {r1, r2, r3}\n ldmia r12!, {r10, r11}\n" \
             "smlad r4, r1, r10, r4\n smlad r5, r2, r10, r5\n smlad r6, r3, r10, r6\n" \
             "smlad r7, r1, r11, r7\n smlad r8, r2, r11, r8\n smlad r9, r3, r11, r9\n"
#define PAIRS_4 PAIR PAIR PAIR PAIR
enum { PAIR_CODE = 30, PAIRS_UNROLLED = 16 }; /* bytes of code of a pair, and pairs in the loop */
#define PUT_CODE(sum, m, b, to) "smmla " sum ", " sum ", " m ", " b "\n usat " sum ", #8, " sum ", asr #11\n strb " sum ", [" to "], #1\n"

/* Codes of the blocks x .. end. */
__attribute__((naked, noinline)) static void run_pairs(const uint32_t *x __attribute__((unused)),
                                                       const uint32_t *end __attribute__((unused)),
                                                       pairs_t *l __attribute__((unused))) {
    __asm__ volatile(
        ".syntax unified\n add r3, r2, #28\n push {r1, r2, r3-r11, lr}\n" /* end of x, l, its zeros */
        "0: ldr r2, [sp, #8]\n ldmia r2, {r4-r9, r11, r12, lr}\n add pc, r11\n nop\n"
        "1:\n" PAIRS_4 PAIRS_4 PAIRS_4 PAIRS_4
        "2: .if 2b - 1b != 480\n .error \"the loop of run_pairs is entered in its middle\"\n .endif\n"
        "cmp r12, lr\n bne 1b\n"
        "ldr r12, [sp, #4]\n ldr r1, [r12, #24]\n cbnz r1, 3f\n ldmia r12, {r1, r2, r3, r10, r11, lr}\n"
        PUT_CODE("r4", "r2", "r3", "r1") PUT_CODE("r5", "r2", "r3", "r1") PUT_CODE("r6", "r2", "r3", "r1")
        PUT_CODE("r7", "r10", "r11", "lr") PUT_CODE("r8", "r10", "r11", "lr") PUT_CODE("r9", "r10", "r11", "lr")
        "4: str r1, [r12]\n str lr, [r12, #20]\n ldr r1, [sp]\n cmp r0, r1\n bne 0b\n"
        "pop {r1, r2, r3-r11, pc}\n"
        "3: ldr r1, [r12]\n ldr lr, [r12, #20]\n stmia r1!, {r4-r6}\n stmia lr!, {r7-r9}\n b 4b\n");
}

/* Codes of `count` pixels of two kernels. */
static void put_codes_of_pairs(pairs_t *l, uint32_t count, const uint32_t *x, uint32_t size) {
    const uint32_t whole = count / (uint32_t)BLOCK;
    const uint32_t rest = count - whole * (uint32_t)BLOCK;
    uint8_t ends[2][BLOCK];
    if (whole != 0u) {
        run_pairs(x, x + whole * size, l);
    }
    if (rest != 0u) { /* nothing may be written behind the last pixel */
        uint8_t *to_a = l->to_a;
        uint8_t *to_b = l->to_b;
        l->to_a = ends[0];
        l->to_b = ends[1];
        run_pairs(x + whole * size, x + (whole + 1u) * size, l);
        (void)memcpy(to_a, ends[0], rest);
        (void)memcpy(to_b, ends[1], rest);
    }
}

/* All results of `count` pixels of kernels k and k + 1 (is_last: of k twice), from `pixel` on. With `sums`, a
 * place for two rows of them, results may be of any kind. */
APART static void put_pairs(const result_t *r, uint32_t results, uint32_t k, uint32_t is_last, uint32_t pixel,
                            uint32_t count, const uint32_t *x, const uint32_t *weights, uint32_t pairs, int32_t *sums) {
    const uint32_t size = 3u * pairs;
    const uint32_t other = is_last != 0u ? k : k + 1u;
    pairs_t l;
    (void)memset(l.zeros, 0, sizeof l.zeros);
    l.weights = weights;
    l.behind = weights + 2u * pairs;
    l.skip = (0u - pairs) % (uint32_t)PAIRS_UNROLLED * (uint32_t)PAIR_CODE;
    l.has_sums = sums != NULL ? 1u : 0u;
    if (sums == NULL) {
        const line_t a = line_of(r, k);
        const line_t b = line_of(r, other);
        l.m_a = shifted(a.m, 9 + (int32_t)POINT - (int32_t)a.n);
        l.b_a = shifted(a.b, (int32_t)POINT - (int32_t)a.n);
        l.m_b = shifted(b.m, 9 + (int32_t)POINT - (int32_t)b.n);
        l.b_b = shifted(b.b, (int32_t)POINT - (int32_t)b.n);
        l.to_a = bytes_of(r->to, k) + pixel;
        l.to_b = bytes_of(r->to, other) + pixel;
        put_codes_of_pairs(&l, count, x, size);
        return;
    }
    const uint32_t blocks = (count + (uint32_t)BLOCK - 1u) / (uint32_t)BLOCK;
    const uint32_t row = blocks * (uint32_t)BLOCK;
    l.to_a = (uint8_t *)sums;
    l.to_b = (uint8_t *)(sums + row);
    run_pairs(x, x + blocks * size, &l);
    for (uint32_t i = 0u; i < 2u * row; i++) {
        sums[i] >>= 12;
    }
    finish(r, results, k, pixel, sums, count, 1u, row);
    if (is_last == 0u) {
        finish(r, results, other, pixel, sums + row, count, 1u, row);
    }
}
#endif
