/* === rows === */
/* Ternary weights by additions. Five channels (or taps of a kernel) of twelve pixels at a time: a word
 * holds two pixels as lanes of 16 bits, a row of six words twelve. A table has the row of every sum
 * +-x0 +-x1 +-x2 (27 rows) and +-x3 +-x4 (9 rows), made once and used by all kernels; a byte of weights
 * is five trits and names one row of each. Final sums fit their lanes: at most 128 weights at a time. Some
 * processors add lanes; on others a sum of lanes is one number, low + 2^16 * high, which plain 32-bit
 * additions leave exact, and 2^15 at the start keep the low lane from borrowing. */
enum { ROW = 6, TILE = 12, ROWS = 36, PER_BYTE = 5 };
#if defined(__GNUC__) && defined(__thumb2__) && defined(__ARM_FEATURE_SIMD32)
#define HAS_LANES
#define SUB_LANES(a, b) ((uint32_t)__ssub16((int16x2_t)(a), (int16x2_t)(b)))
#define SUM "sadd16 "
#define DIFFERENCE "ssub16 "
#define START "#0"
#else
#define SUB_LANES(a, b) ((a) - (b))
enum { LANE = 0x8000 };
#if defined(__GNUC__) && defined(__thumb2__)
#define SUM "add "
#define DIFFERENCE "sub "
#define START "#0x8000"
#endif
#endif

/* The tap of trit j of a byte. Two bytes have ten taps; their last trits are the last two, a pair like the others. */
static inline uint32_t tap_of(uint32_t byte, uint32_t j) {
    return byte / 2u * 10u + (j < 4u ? (byte & 1u) * 4u + j : 8u + (byte & 1u));
}

/* === sum rows: needs rows === */
/* Of a byte of weights: how many bytes to skip in its table for either row. */
static const uint32_t row_pairs[243] = {
ROW_PAIRS
};

/* rows[j] = the sum of the rows that the bytes of branch j name, count >= 1 of them. In assembly where it is known: compilers do not
 * load several words by one instruction. */
#if defined(__GNUC__) && defined(__thumb__)
#if defined(__thumb2__)
#define ADD_ROW "ldmia r12!, {r1, r3, lr}\n" SUM "r4, r4, r1\n" SUM "r5, r5, r3\n" SUM "r6, r6, lr\n" \
                "ldmia r12, {r1, r3, lr}\n" SUM "r7, r7, r1\n" SUM "r8, r8, r3\n" SUM "r9, r9, lr\n"
#if defined(__ARM_FEATURE_DSP)
#define FIRST_ROW "uxtah r12, r2, r11\n"
#define SECOND_ROW "uxtah r12, r2, r11, ror #16\n"
#else
#define FIRST_ROW "uxth r12, r11\n add r12, r12, r2\n"
#define SECOND_ROW "add r12, r2, r11, lsr #16\n"
#endif
#define ADD_BYTE "ldrb r11, [r0], #1\n ldr r11, [r10, r11, lsl #2]\n" FIRST_ROW ADD_ROW SECOND_ROW ADD_ROW \
                 "add r2, r2, #864\n"
#define IS_DONE "ldr r1, [sp]\n cmp r0, r1\n"
__attribute__((naked, noinline)) static void sum_rows(
    const uint8_t *bytes __attribute__((unused)), uint32_t count __attribute__((unused)),
    const uint32_t *table __attribute__((unused)), uint32_t *rows __attribute__((unused)),
    const uint32_t *pairs __attribute__((unused)), uint32_t branches __attribute__((unused))) {
    __asm__ volatile(
        ".syntax unified\n push {r1-r11, lr}\n ldr r10, [sp, #48]\n sub sp, #4\n" /* end, count, table, rows */
        "0: ldr r2, [sp, #8]\n ldr r1, [sp, #4]\n add r3, r0, r1\n str r3, [sp]\n"
        "mov r4, " START "\n mov r5, r4\n mov r6, r4\n mov r7, r4\n mov r8, r4\n mov r9, r4\n"
        "lsls r1, r1, #30\n bpl 1f\n" ADD_BYTE ADD_BYTE "1: ldr r1, [sp]\n subs r1, r1, r0\n lsls r1, r1, #31\n beq 2f\n" ADD_BYTE
        "2:\n" IS_DONE "beq 4f\n"
        "3:\n" ADD_BYTE ADD_BYTE ADD_BYTE ADD_BYTE IS_DONE "bne 3b\n"
        "4: ldr r3, [sp, #12]\n stmia r3!, {r4-r9}\n str r3, [sp, #12]\n"
        "ldr r1, [sp, #56]\n subs r1, r1, #1\n str r1, [sp, #56]\n bne 0b\n add sp, #4\n pop {r1-r11, pc}\n");
}
#else
#define ADD_ROW(p) "ldmia " p "!, {r3, r4, r5}\n add r8, r3\n add r9, r4\n add r10, r5\n" \
                   "ldmia " p "!, {r3, r4, r5}\n add r11, r3\n add r12, r4\n add lr, r5\n"
__attribute__((naked, noinline)) static void sum_rows(
    const uint8_t *bytes __attribute__((unused)), uint32_t count __attribute__((unused)),
    const uint32_t *table __attribute__((unused)), uint32_t *rows __attribute__((unused)),
    const uint32_t *pairs __attribute__((unused)), uint32_t branches __attribute__((unused))) {
    __asm__ volatile(
        ".syntax unified\n push {r4-r7, lr}\n mov r4, r8\n mov r5, r9\n mov r6, r10\n mov r7, r11\n push {r4-r7}\n"
        "movs r5, #27\n lsls r5, r5, #5\n sub sp, #4\n push {r1, r2, r3, r5}\n" /* count, table, rows, 864, end */
        "0: ldr r1, [sp]\n adds r4, r0, r1\n str r4, [sp, #16]\n ldr r1, [sp, #4]\n ldr r2, [sp, #56]\n"
        "movs r3, #1\n lsls r3, r3, #15\n"
        "mov r8, r3\n mov r9, r3\n mov r10, r3\n mov r11, r3\n mov r12, r3\n mov lr, r3\n"
        "1: ldrb r6, [r0]\n adds r0, r0, #1\n lsls r6, r6, #2\n ldr r6, [r2, r6]\n"
        "uxth r7, r6\n adds r7, r7, r1\n" ADD_ROW("r7")
        "lsrs r6, r6, #16\n adds r6, r6, r1\n" ADD_ROW("r6")
        "ldr r3, [sp, #12]\n adds r1, r1, r3\n ldr r3, [sp, #16]\n cmp r0, r3\n bne 1b\n"
        "ldr r1, [sp, #8]\n mov r2, r8\n mov r3, r9\n mov r4, r10\n mov r5, r11\n mov r6, r12\n mov r7, lr\n"
        "stmia r1!, {r2-r7}\n str r1, [sp, #8]\n ldr r1, [sp, #60]\n subs r1, r1, #1\n str r1, [sp, #60]\n bne 0b\n"
        "add sp, #20\n pop {r4-r7}\n mov r8, r4\n mov r9, r5\n mov r10, r6\n mov r11, r7\n pop {r4-r7, pc}\n");
}
#endif
#else
static void sum_rows(const uint8_t *bytes, uint32_t count, const uint32_t *table, uint32_t *rows,
                     const uint32_t *pairs, uint32_t branches) {
    for (uint32_t j = 0u; j < branches; j++) {
        uint32_t a = LANE, b = LANE, c = LANE, d = LANE, e = LANE, f = LANE;
        const uint32_t *t = table;
        for (uint32_t i = 0u; i < count; i++) {
            const uint32_t skip = pairs[*bytes++];
            const uint32_t *p = t + (skip & 0xFFFFu) / 4u;
            const uint32_t *q = t + (skip >> 16) / 4u;
            a += p[0] + q[0];
            b += p[1] + q[1];
            c += p[2] + q[2];
            d += p[3] + q[3];
            e += p[4] + q[4];
            f += p[5] + q[5];
            t += ROWS * ROW;
        }
        rows[0] = a;
        rows[1] = b;
        rows[2] = c;
        rows[3] = d;
        rows[4] = e;
        rows[5] = f;
        rows += ROW;
    }
}
#endif

/* === ternary: needs finish, window, sum rows === */
typedef struct {
    const tensor_t *from;
    const result_t *results;
    const uint8_t *bytes;   /* weights: [group of channels][window][kernel][branch][bytes] */
    const uint8_t *factors; /* [kernel][branch], of four bits each; NULL: each branch is a sum of its own */
    uint32_t tables, sums;  /* where these live in the arena */
    uint16_t groups, kernels, taps, bytes_per_window, windows; /* kernels and taps of one group */
    uint16_t bytes_all; /* of a kernel and branch */
    uint16_t tile;      /* pixels whose pairs are made at once */
    uint8_t branches, results_count, is_pointwise, is_plain, is_direct;
    window_t window;
} ternary_t;

/* What the weight with number `tap` is multiplied by, for pixels first .. first + 11, four to a word; 0 behind the last tap. */
static const uint32_t *gather(const ternary_t *l, uint32_t group, uint32_t tap, uint32_t first, uint32_t *words) {
    const tensor_t *from = l->from;
    const tensor_t *to = l->results[0].to;
    const window_t *w = &l->window;
    const uint32_t area = (uint32_t)w->kernel_h * w->kernel_w;
    const uint8_t *plane = bytes_of(from, group * (l->taps / area) + tap / area);
    const int32_t down = (int32_t)(tap % area / w->kernel_w * w->dilation_h) - (int32_t)w->top;
    const int32_t across = (int32_t)(tap % w->kernel_w * w->dilation_w) - (int32_t)w->left;
    const uint32_t width = from->width;
    const int32_t stride = (int32_t)w->stride_w;
    int32_t y = (int32_t)(first / to->width * w->stride_h) + down;
    uint32_t x = first % to->width;
    uint8_t *pixels = (uint8_t *)words;
    uint32_t done = tap < l->taps ? 0u : (uint32_t)TILE;
    (void)memset(pixels, 0, TILE);
    while (done < (uint32_t)TILE) { /* a row of the output, or what is left of it */
        const uint32_t rest = (uint32_t)TILE - done;
        const uint32_t run = to->width - x < rest ? to->width - x : rest;
        if (y >= 0 && y < (int32_t)from->height) {
            const uint8_t *row = plane + (uint32_t)y * width;
            uint32_t at = (uint32_t)((int32_t)x * stride + across); /* left of the row it is a large number */
            for (uint32_t i = done; i < done + run; i++) {
                if (at < width) {
                    pixels[i] = row[at];
                }
                at += (uint32_t)stride;
            }
        }
        done += run;
        x = 0u;
        y += (int32_t)w->stride_h;
    }
    return words;
}

/* Lanes of two pixels of the five taps of a byte, a row each: the tap that changes most often lies behind the next one, so
 * that one address serves both. */
enum { TAP_1, TAP_0, TAP_2, TAP_4, TAP_3, LANE_ROWS };

/* All sums +-x0 +-x1 +-x2 and then all +-x3 +-x4, in an order in which each differs from the one before by one tap: from
 * all taps added to all taps subtracted, the first tap changing fastest, to and fro. */
#if defined(__GNUC__) && defined(__thumb2__)
#define TAP "{r1, r3, r10-r12, lr}\n" /* r4-r9 is the row */
#define STEP(op) op "r4, r4, r1\n" op "r5, r5, r3\n" op "r6, r6, r10\n" op "r7, r7, r11\n" op "r8, r8, r12\n" op "r9, r9, lr\n"
#define PUT "stmia r0!, {r4-r9}\n"
#define STEP_0(op) STEP(op) PUT
#define STEP_1(op) "ldmdb r2, " TAP STEP(op) PUT "ldmia r2, " TAP
#define STEP_2(op) "add r2, #24\n ldmia r2, " TAP STEP(op) "ldmdb r2, " TAP "sub r2, #24\n"
#define NINE(to, fro) PUT STEP_0(to) STEP_0(to) STEP_1(to) STEP_0(fro) STEP_0(fro) STEP_1(to) STEP_0(to) STEP_0(to)
__attribute__((naked, noinline)) static void write_rows(uint32_t *t __attribute__((unused)),
                                                        const uint32_t *lanes __attribute__((unused))) {
    __asm__ volatile(
        ".syntax unified\n push {r4-r11, lr}\n movs r3, #2\n push {r3}\n add r2, r1, #24\n"
        "ldmdb r2, {r4-r9}\n" STEP_2(SUM) STEP(SUM)
        "1:\n" NINE(DIFFERENCE, SUM) "ldr r1, [sp]\n subs r1, r1, #1\n str r1, [sp]\n bmi 3f\n beq 2f\n"
        STEP_2(DIFFERENCE) NINE(SUM, DIFFERENCE) STEP_2(DIFFERENCE) "b 1b\n"
        "2: add r2, #72\n ldmdb r2, {r4-r9}\n ldmia r2, " TAP STEP(SUM) "b 1b\n"
        "3: add sp, #4\n pop {r4-r11, pc}\n");
}
#else
/* Nine rows of one column, of which `v` is in the first; returns what is in the last. */
static inline uint32_t put_nine(uint32_t *to, uint32_t v, uint32_t p, uint32_t q) {
    to[0] = v;
    to[ROW] = v - p;
    v = v - p - p;
    to[2 * ROW] = v;
    v -= q;
    to[3 * ROW] = v;
    to[4 * ROW] = v + p;
    v = v + p + p;
    to[5 * ROW] = v;
    v -= q;
    to[6 * ROW] = v;
    to[7 * ROW] = v - p;
    v = v - p - p;
    to[8 * ROW] = v;
    return v;
}

static void write_rows(uint32_t *t, const uint32_t *lanes) {
    for (uint32_t i = 0u; i < (uint32_t)ROW; i++) {
        const uint32_t p = lanes[TAP_0 * ROW];
        const uint32_t q = lanes[TAP_1 * ROW];
        const uint32_t r = lanes[TAP_2 * ROW];
        uint32_t v = put_nine(t, p + q + r, p, q);
        v = put_nine(t + 9 * ROW, v - r, 0u - p, 0u - q);
        (void)put_nine(t + 18 * ROW, v - r, p, q);
        const uint32_t s = lanes[TAP_3 * ROW];
        const uint32_t u = lanes[TAP_4 * ROW];
        (void)put_nine(t + 27 * ROW, s + u, s, u);
        lanes++;
        t++;
    }
}
#endif

/* Twelve pixels of each tap, three words of four, as lanes. */
#if defined(__GNUC__) && defined(__thumb2__)
#define SPLIT "ldr r10, [r1], #4\n ldmia r10, {r10, r11, r12}\n" \
              "and r4, r3, r10\n and r5, r3, r10, lsr #8\n and r6, r3, r11\n and r7, r3, r11, lsr #8\n" \
              "and r8, r3, r12\n and r9, r3, r12, lsr #8\n stmia r0!, {r4-r9}\n"
__attribute__((naked, noinline)) static void split_taps(uint32_t *lanes __attribute__((unused)),
                                                        const uint32_t *const *source __attribute__((unused))) {
    __asm__ volatile(".syntax unified\n push {r4-r12, lr}\n mov r3, #0x00FF00FF\n" SPLIT SPLIT SPLIT SPLIT SPLIT "pop {r4-r12, pc}\n");
}
#else
static void split_taps(uint32_t *lanes, const uint32_t *const *source) {
    for (uint32_t j = 0u; j < (uint32_t)LANE_ROWS; j++) {
        for (uint32_t i = 0u; i < 3u; i++) {
            *lanes++ = source[j][i] & 0x00FF00FFu;
            *lanes++ = (source[j][i] >> 8) & 0x00FF00FFu;
        }
    }
}
#endif

/* Signed codes: lanes are still bytes of two's complement, without their signs. */
static void make_signed(uint32_t *lanes) {
    for (uint32_t i = 0u; i < (uint32_t)(LANE_ROWS * ROW); i++) {
        lanes[i] = SUB_LANES(lanes[i] ^ 0x00800080u, 0x00800080u);
    }
}

/* The tables of all bytes of a window. */
APART static void make_tables(const ternary_t *l, uint32_t group, uint32_t window, uint32_t first, uint32_t bytes) {
    const uint32_t zeros[TILE / 4] = {0u, 0u, 0u};
    const uint32_t plane = l->from->plane / 4u;
    const uint32_t *base = arena + (l->from->at + group * l->taps * l->from->plane + first) / 4u;
    const uint32_t taps = l->is_pointwise != 0u ? l->taps : 0u; /* that are read where they are */
    uint32_t *table = arena + l->tables / 4u;
    uint32_t *end = table + bytes * (uint32_t)(ROWS * ROW);
    uint32_t pixels[PER_BYTE][TILE / 4];
    uint32_t lanes[LANE_ROWS * ROW];
    const uint32_t *source[LANE_ROWS];
    uint32_t byte = window * l->bytes_per_window;
    while (table != end) {
        const uint32_t tap = tap_of(byte, 0u);
        const uint32_t last = tap_of(byte, 4u);
        if (tap + 3u < taps) {
            const uint32_t *p = base + tap * plane;
            source[TAP_0] = p;
            p += plane;
            source[TAP_1] = p;
            p += plane;
            source[TAP_2] = p;
            source[TAP_3] = p + plane;
            source[TAP_4] = last < taps ? base + last * plane : zeros;
        } else if (taps != 0u) {
            source[TAP_0] = base + tap * plane;
            source[TAP_1] = tap + 1u < taps ? base + (tap + 1u) * plane : zeros;
            source[TAP_2] = tap + 2u < taps ? base + (tap + 2u) * plane : zeros;
            source[TAP_3] = zeros;
            source[TAP_4] = zeros;
        } else {
            source[TAP_0] = gather(l, group, tap, first, pixels[0]);
            source[TAP_1] = gather(l, group, tap + 1u, first, pixels[1]);
            source[TAP_2] = gather(l, group, tap + 2u, first, pixels[2]);
            source[TAP_3] = gather(l, group, tap + 3u, first, pixels[3]);
            source[TAP_4] = gather(l, group, last, first, pixels[4]);
        }
        split_taps(lanes, source);
        if (l->from->type == I8) {
            make_signed(lanes);
        }
        write_rows(table, lanes);
        table += ROWS * ROW;
        byte++;
    }
}

static inline int32_t low_lane(uint32_t word) {
#ifdef HAS_LANES
    return (int32_t)(word << 16) >> 16;
#else
    return (int32_t)(word & 0xFFFFu) - LANE;
#endif
}

static inline int32_t high_lane(uint32_t word) {
    return (int32_t)word >> 16;
}

/* Adds `factor` times the sums of a row to those of twelve pixels. */
static void add_lanes(int32_t *s, const uint32_t *row, int32_t factor) {
    for (uint32_t i = 0u; i < (uint32_t)ROW; i += 2u) {
        s[0] += PRODUCT(low_lane(row[i]), factor);
        s[1] += PRODUCT(low_lane(row[i + 1u]), factor);
        s[2] += PRODUCT(high_lane(row[i]), factor);
        s[3] += PRODUCT(high_lane(row[i + 1u]), factor);
        s += 4;
    }
}

#ifdef HAS_LANES
enum { LANES_POINT = 11 }; /* bits behind the point of a scaled sum */

typedef struct {
    const uint32_t *table, *end;
    const int32_t *lines; /* of each kernel, m and b */
    uint8_t *to;
    uint32_t plane;
    const uint8_t *behind; /* the last byte of weights */
    uint32_t part; /* 0, or how many of the three words there are */
    uint32_t skip; /* bytes of code, from the start of the loop */
} rows_t;

/* Codes of four pixels, from lanes (0, 2) and (1, 3). */
#define PUT_FOUR_LANES(to, even, odd) \
    "smlawb " to ", r2, " even ", r3\n usat " to ", #8, " to ", asr #11\n" \
    "smlawb r11, r2, " odd ", r3\n usat r11, #8, r11, asr #11\n orr " to ", " to ", r11, lsl #8\n" \
    "smlawt r11, r2, " even ", r3\n usat r11, #8, r11, asr #11\n orr " to ", " to ", r11, lsl #16\n" \
    "smlawt r11, r2, " odd ", r3\n usat r11, #8, r11, asr #11\n orr " to ", " to ", r11, lsl #24\n"

/* Codes 0 .. 255 of twelve pixels of all kernels of one branch. The first row is loaded, not added,
 * and the loop is entered in its middle. */
#define FIRST_BYTE "ldrb r11, [r0], #1\n ldr r11, [r10, r11, lsl #2]\n" FIRST_ROW "ldmia r12, {r4-r9}\n" SECOND_ROW ADD_ROW \
                   "add r2, r2, #864\n"
enum { BYTE_CODE = 84, BYTES_UNROLLED = 4 }; /* bytes of code of ADD_BYTE, and how many of them are in the loop */
__attribute__((naked, noinline)) static void run_rows(const uint8_t *bytes __attribute__((unused)),
                                                      const rows_t *l __attribute__((unused)),
                                                      const uint32_t *pairs __attribute__((unused))) {
    __asm__ volatile(
        ".syntax unified\n push {r4-r11, lr}\n sub sp, #32\n mov r10, r2\n ldmia r1, {r2-r9}\n"
        "stmia sp, {r2-r9}\n" /* 0 table, 4 its end, 8 lines, 12 to, 16 plane, 20 end of bytes, 24 part, 28 skip */
        "0: ldr r2, [sp]\n" FIRST_BYTE "ldr r3, [sp, #28]\n add pc, r3\n nop\n"
        "1:\n" ADD_BYTE ADD_BYTE ADD_BYTE ADD_BYTE
        "2: .if 2b - 1b != 336\n .error \"the loop of run_rows is entered in its middle\"\n .endif\n"
        "ldr r1, [sp, #4]\n cmp r2, r1\n bne 1b\n"
        "ldrd r1, r12, [sp, #8]\n ldrd r2, r3, [r1], #8\n str r1, [sp, #8]\n"
        PUT_FOUR_LANES("r1", "r4", "r5") PUT_FOUR_LANES("r4", "r6", "r7") PUT_FOUR_LANES("r6", "r8", "r9")
        "ldr r5, [sp, #24]\n cbnz r5, 4f\n stmia r12, {r1, r4, r6}\n"
        "3: ldrd r1, r2, [sp, #16]\n add r12, r12, r1\n str r12, [sp, #12]\n cmp r0, r2\n bne 0b\n"
        "add sp, #32\n pop {r4-r11, pc}\n"
        "4: str r1, [r12]\n cmp r5, #2\n it eq\n streq r4, [r12, #4]\n b 3b\n");
}

/* m and b of all kernels, times 2^LANES_POINT and what run_rows divides by. */
static void make_lines(const ternary_t *l, int32_t *lines) {
    for (uint32_t k = 0u; k < l->kernels; k++) {
        const line_t line = line_of(l->results, k);
        lines[0] = shifted(line.m, 5 + (int32_t)LANES_POINT - (int32_t)line.n);
        lines[1] = shifted(line.b, (int32_t)LANES_POINT - (int32_t)line.n);
        lines += 2;
    }
}

static void direct_kernels(const ternary_t *l, uint32_t first, uint32_t count) {
    const tensor_t *to = l->results[0].to;
    rows_t rows;
    rows.table = arena + l->tables / 4u;
    rows.end = rows.table + (uint32_t)l->bytes_per_window * ROWS * ROW;
    rows.lines = (const int32_t *)arena + l->sums / 4u;
    rows.to = bytes_of(to, 0u) + first;
    rows.plane = to->plane;
    rows.behind = l->bytes + (uint32_t)l->kernels * l->bytes_per_window;
    rows.part = (count + 3u) / 4u % 3u;
    /* Of one byte nothing is left: to the end of the loop. */
    const uint32_t left = l->bytes_per_window - 1u;
    rows.skip = left == 0u ? (uint32_t)BYTES_UNROLLED * (uint32_t)BYTE_CODE
                           : (0u - left) % (uint32_t)BYTES_UNROLLED * (uint32_t)BYTE_CODE;
    run_rows(l->bytes, &rows, row_pairs);
}
#else
/* floor(x * m / 2^27): of a lane in the upper half of a word, as it stands there. */
static inline int32_t scaled_lane(uint32_t x, int32_t m) {
#ifdef SMALL_PRODUCTS
    return scaled((int32_t)x >> 16, m);
#else
    return (int32_t)(((int64_t)(int32_t)x * (m * 32)) >> 32);
#endif
}

static inline uint32_t code_of(int32_t t, uint32_t n, int32_t low, int32_t high) {
    return (uint32_t)clamped(t >> n, low, high) & 255u;
}

/* Codes of twelve pixels from lanes: one branch. */
static inline void put_one(const line_t *line, const uint32_t *row, uint32_t *to, uint32_t words, int32_t low,
                           int32_t high) {
    const int32_t m = line->m;
    const int32_t b = line->b;
    const uint32_t n = line->n;
    for (uint32_t i = 0u; i < words; i++) {
        const uint32_t even = *row++;
        const uint32_t odd = *row++;
        const int32_t p = scaled_lane((even << 16) ^ 0x80000000u, m) + b;
        const int32_t q = scaled_lane((odd << 16) ^ 0x80000000u, m) + b;
        const int32_t r = scaled_lane(even & 0xFFFF0000u, m) + b;
        const int32_t s = scaled_lane(odd & 0xFFFF0000u, m) + b;
        *to++ = code_of(p, n, low, high) | (code_of(q, n, low, high) << 8) | (code_of(r, n, low, high) << 16) |
                (code_of(s, n, low, high) << 24);
    }
}

/* Codes of twelve pixels from lanes: two branches, whose sums are joined by whole factors. */
static inline void put_two(const line_t *line, const uint32_t *row, uint32_t *to, uint32_t words, int32_t low,
                           int32_t high, const uint8_t *factors) {
    const uint32_t n = line->n;
    const int32_t b = line->b;
    const int32_t f = *factors & 15;
    const int32_t g = *factors >> 4;
    const int32_t m = line->m;
    for (uint32_t i = 0u; i < words; i++) {
        const int32_t p = PRODUCT(low_lane(row[0]), f) + PRODUCT(low_lane(row[ROW]), g);
        const int32_t r = PRODUCT(high_lane(row[0]), f) + PRODUCT(high_lane(row[ROW]), g);
        const int32_t q = PRODUCT(low_lane(row[1]), f) + PRODUCT(low_lane(row[ROW + 1]), g);
        const int32_t s = PRODUCT(high_lane(row[1]), f) + PRODUCT(high_lane(row[ROW + 1]), g);
        *to++ = code_of(scaled(p, m) + b, n, low, high) | (code_of(scaled(q, m) + b, n, low, high) << 8) |
                (code_of(scaled(r, m) + b, n, low, high) << 16) | (code_of(scaled(s, m) + b, n, low, high) << 24);
        row += 2;
    }
}

#ifdef SMALL_PRODUCTS
/* Codes 0 .. 255 by products of 32 bits. What the low lanes have too much is taken from b. */
#define LOW_CODE(p) byte_of((int32_t)((uint32_t)PRODUCT(p, m) + low) >> n)
#define HIGH_CODE(p) byte_of((int32_t)((uint32_t)PRODUCT(p, m) + high) >> n)
static void put_narrow(line_t *line, const uint32_t *row, uint32_t *to, uint32_t words, int32_t f, int32_t g) {
    make_narrow(line);
    const int32_t m = line->m;
    const uint32_t n = line->n;
    const uint32_t high = (uint32_t)line->b;
    const uint32_t low = high - (uint32_t)PRODUCT(PRODUCT(f + g, m), LANE);
    for (uint32_t i = 0u; i < words; i++) {
        const uint32_t even = row[0];
        const uint32_t odd = row[1];
        uint32_t four;
        if (g == 0) {
            four = LOW_CODE((int32_t)(even & 0xFFFFu)) | (HIGH_CODE(high_lane(even)) << 16);
            four |= (LOW_CODE((int32_t)(odd & 0xFFFFu)) << 8) | (HIGH_CODE(high_lane(odd)) << 24);
        } else {
            const uint32_t even_b = row[ROW];
            const uint32_t odd_b = row[ROW + 1];
            four = LOW_CODE(PRODUCT((int32_t)(even & 0xFFFFu), f) + PRODUCT((int32_t)(even_b & 0xFFFFu), g));
            four |= HIGH_CODE(PRODUCT(high_lane(even), f) + PRODUCT(high_lane(even_b), g)) << 16;
            four |= LOW_CODE(PRODUCT((int32_t)(odd & 0xFFFFu), f) + PRODUCT((int32_t)(odd_b & 0xFFFFu), g)) << 8;
            four |= HIGH_CODE(PRODUCT(high_lane(odd), f) + PRODUCT(high_lane(odd_b), g)) << 24;
        }
        *to++ = four;
        row += 2;
    }
}
#endif

/* The usual range of codes is known to the compiler, which has one instruction for it. */
APART static void put_lanes(const result_t *r, uint32_t k, const uint32_t *rows, uint32_t *to, uint32_t words,
                            const uint8_t *factors) {
    line_t line = line_of(r, k);
#ifdef SMALL_PRODUCTS
    if (r->form == 2u && r->low == 0 && r->high == 255) {
        put_narrow(&line, rows, to, words, factors != NULL ? *factors & 15 : 1, factors != NULL ? *factors >> 4 : 0);
        return;
    }
#endif
    if (r->low != 0 || r->high != 255) {
        if (factors == NULL) {
            put_one(&line, rows, to, words, r->low, r->high);
        } else {
            put_two(&line, rows, to, words, r->low, r->high, factors);
        }
    } else if (factors == NULL) {
        put_one(&line, rows, to, words, 0, 255);
    } else {
        put_two(&line, rows, to, words, 0, 255, factors);
    }
}

/* All kernels of a layer with one group, one window, one result of 8 bits, and one or two joined branches. */
static void plain_kernels(const ternary_t *l, uint32_t first, uint32_t count) {
    const result_t *r = l->results;
    const uint32_t size = l->bytes_per_window;
    const uint32_t *table = arena + l->tables / 4u;
    const uint8_t *bytes = l->bytes;
    const uint8_t *factors = l->factors;
    uint32_t *to = arena + (r->to->at + first) / 4u;
    const uint32_t plane = r->to->plane / 4u;
    const uint32_t words = (count + 3u) / 4u;
    const uint32_t kernels = l->kernels;
    const uint32_t branches = factors != NULL ? 2u : 1u;
    for (uint32_t k = 0u; k < kernels; k++) {
        uint32_t rows[2 * ROW];
        sum_rows(bytes, size, table, rows, row_pairs, branches);
        put_lanes(r, k, rows, to, words, factors);
        bytes += branches * size;
        factors += factors != NULL ? 1 : 0;
        to += plane;
    }
}

#endif

/* Kernels of one group, one window and twelve pixels; returns the weights behind those it used. */
static const uint8_t *any_kernels(const ternary_t *l, uint32_t group, uint32_t window, uint32_t first,
                                  uint32_t count, uint32_t size, const uint8_t *bytes) {
    const uint32_t sums = l->factors != NULL ? 1u : l->branches;
    const uint32_t *table = arena + l->tables / 4u;
    for (uint32_t k = 0u; k < l->kernels; k++) {
        const uint32_t kernel = group * l->kernels + k;
        int32_t *s = (int32_t *)arena + l->sums / 4u + (l->windows > 1u ? k * sums * (uint32_t)TILE : 0u);
        if (window == 0u) {
            (void)memset(s, 0, sizeof(int32_t) * sums * (uint32_t)TILE);
        }
        uint32_t rows[3 * ROW];
        sum_rows(bytes, size, table, rows, row_pairs, l->branches);
        bytes += l->branches * size;
        for (uint32_t j = 0u; j < l->branches; j++) {
            if (l->factors != NULL) {
                const uint32_t two = l->factors[kernel * ((l->branches + 1u) / 2u) + j / 2u];
                add_lanes(s, rows + j * (uint32_t)ROW, (int32_t)((j & 1u) == 0u ? two & 15u : two >> 4));
            } else {
                add_lanes(s + j * (uint32_t)TILE, rows + j * (uint32_t)ROW, 1);
            }
        }
        if (window + 1u == l->windows) {
            finish(l->results, l->results_count, kernel, first, s, count, sums, TILE);
        }
    }
    return bytes;
}

OPTIONAL static void ternary(const ternary_t *l) {
    const tensor_t *to = l->results[0].to;
    const uint32_t pixels = (uint32_t)to->height * to->width;
    const uint32_t all = l->bytes_all;
#ifdef HAS_LANES
    if (l->is_direct != 0u) {
        make_lines(l, (int32_t *)arena + l->sums / 4u);
    }
#endif
    for (uint32_t first = 0u; first < pixels; first += (uint32_t)TILE) {
        const uint32_t count = pixels - first < (uint32_t)TILE ? pixels - first : (uint32_t)TILE;
        const uint8_t *bytes = l->bytes;
        for (uint32_t group = 0u; group < l->groups; group++) {
            for (uint32_t window = 0u; window < l->windows; window++) {
                const uint32_t rest = all - window * l->bytes_per_window;
                const uint32_t size = rest < l->bytes_per_window ? rest : l->bytes_per_window;
                make_tables(l, group, window, first, size);
#ifdef HAS_LANES
                if (l->is_direct != 0u) {
                    direct_kernels(l, first, count);
                } else
#else
                if (l->is_plain != 0u) {
                    plain_kernels(l, first, count);
                } else
#endif
                {
                    bytes = any_kernels(l, group, window, first, count, size, bytes);
                }
            }
        }
    }
}

/* === joined: needs ternary, pairs === */
/* Two branches whose sums are joined by whole factors are one product with a small integer, where there are
 * products of pairs. */
#ifdef HAS_PAIRS
/* Of a byte, its trits times 2^12, 2^28, 2^8, 2^24 and 2^4. Times a factor, and added, they are v of each tap, of four
 * bits; from there to the upper end of half a word it is one shift. */
static const uint32_t spread_trits[243] = {
SPREAD_TRITS
};

/* Pairs of weights, 2^12 v, of one kernel: every second word of `to`. Its bytes of the first branch, `size` of them, then
 * those of the second. */
#define SPREAD(v) "ldrb r4, [r0], #1\n ldrb r5, [r1], #1\n ldr r4, [r9, r4, lsl #2]\n ldr r5, [r9, r5, lsl #2]\n" \
                  "mla " v ", r4, r7, r10\n mla " v ", r5, r8, " v "\n eor " v ", " v ", r10\n"
#define PUT_FOUR(v) "and r4, r11, " v "\n str r4, [r3], #8\n and r4, r11, " v ", lsl #4\n str r4, [r3], #8\n"
__attribute__((naked, noinline)) static void unpack_joined(
    const uint8_t *bytes __attribute__((unused)), uint32_t size __attribute__((unused)),
    uint32_t factors __attribute__((unused)), uint32_t *to __attribute__((unused)),
    const uint32_t *trits __attribute__((unused))) {
    __asm__ volatile(
        ".syntax unified\n push {r4-r11, lr}\n ldr r9, [sp, #36]\n and r7, r2, #15\n lsrs r8, r2, #4\n"
        "mov r10, #0x88888888\n mov r11, #0xF000F000\n add r6, r0, r1\n bic r2, r1, #1\n add r2, r0, r2\n mov r1, r6\n"
        "1: cmp r0, r2\n beq 2f\n" SPREAD("r12") SPREAD("lr") PUT_FOUR("r12") PUT_FOUR("lr")
        "lsl r12, r12, #8\n pkhbt r12, r12, lr, lsl #24\n and r12, r12, r11\n str r12, [r3], #8\n b 1b\n"
        "2: cmp r0, r6\n beq 3f\n" SPREAD("r12") PUT_FOUR("r12") "3: pop {r4-r11, pc}\n");
}

/* Four pixels of two taps, as pairs: pixel by pixel. */
#define FOUR_PAIRS(i, p, q, r, s) \
    do { \
        const uint32_t even = a[i] & 0x00FF00FFu; \
        const uint32_t odd = (a[i] >> 8) & 0x00FF00FFu; \
        const uint32_t even_b = b[i] & 0x00FF00FFu; \
        const uint32_t odd_b = (b[i] >> 8) & 0x00FF00FFu; \
        p = (even & 0xFFFFu) | (even_b << 16); \
        q = (odd & 0xFFFFu) | (odd_b << 16); \
        r = (even >> 16) | (even_b & 0xFFFF0000u); \
        s = (odd >> 16) | (odd_b & 0xFFFF0000u); \
    } while (0)

/* Twelve pixels of two taps: three in each of four blocks, of which the first begins at x. */
static inline void put_inputs(const uint32_t *a, const uint32_t *b, uint32_t *x, uint32_t size) {
    uint32_t *y = x + 2u * size;
    FOUR_PAIRS(0, x[0], x[1], x[2], x[size]);
    FOUR_PAIRS(1, x[size + 1u], x[size + 2u], y[0], y[1]);
    y += size;
    FOUR_PAIRS(2, y[-(int32_t)size + 2], y[0], y[1], y[2]);
}

/* Inputs as pairs of taps: [block of three pixels][pair][pixel]. */
APART static void make_blocks(const ternary_t *l, uint32_t first, uint32_t count, uint32_t pairs, uint32_t *x) {
    const uint32_t zeros[TILE / 4] = {0u, 0u, 0u};
    const uint32_t plane = l->from->plane / 4u;
    const uint32_t size = 3u * pairs;
    for (uint32_t i = 0u; i < count; i += (uint32_t)TILE) {
        if (l->is_pointwise != 0u) {
            const uint32_t *a = arena + (l->from->at + first + i) / 4u;
            for (uint32_t j = 0u; j < l->taps / 2u; j++) {
                put_inputs(a, a + plane, x, size);
                a += 2u * plane;
                x += 3;
            }
            if ((l->taps & 1u) != 0u) {
                put_inputs(a, zeros, x, size);
                x += 3;
            }
        } else {
            for (uint32_t j = 0u; j < pairs; j++) {
                uint32_t pixels[2][TILE / 4];
                const uint32_t *a = gather(l, 0u, 2u * j, first + i, pixels[0]);
                const uint32_t *b = gather(l, 0u, 2u * j + 1u, first + i, pixels[1]);
                put_inputs(a, b, x, size);
                x += 3;
            }
        }
        x += 3u * size;
    }
}

/* Pairs of weights of kernel k, whose bytes lie in windows. */
static void unpack_kernel(const ternary_t *l, uint32_t k, uint32_t *to) {
    const uint8_t *bytes = l->bytes;
    for (uint32_t done = 0u; done < l->bytes_all; done += l->bytes_per_window) {
        const uint32_t rest = l->bytes_all - done;
        const uint32_t size = rest < l->bytes_per_window ? rest : l->bytes_per_window;
        unpack_joined(bytes + 2u * size * k, size, l->factors[k], to, spread_trits);
        bytes += 2u * size * l->kernels;
        to += 5u * size;
    }
}

static void joined(const ternary_t *l) {
    const tensor_t *to = l->results[0].to;
    const uint32_t pixels = (uint32_t)to->height * to->width;
    const uint32_t pairs = (l->taps + 1u) / 2u;
    uint32_t *x = arena + l->tables / 4u;
    uint32_t *weights = x + (uint32_t)l->tile * pairs;
    int32_t *sums = l->is_direct != 0u ? NULL : (int32_t *)arena + l->sums / 4u;
    for (uint32_t first = 0u; first < pixels; first += l->tile) {
        const uint32_t count = pixels - first < l->tile ? pixels - first : l->tile;
        make_blocks(l, first, count, pairs, x);
        for (uint32_t k = 0u; k < l->kernels; k += 2u) {
            const uint32_t is_last = k + 1u == l->kernels ? 1u : 0u;
            unpack_kernel(l, k, weights);
            unpack_kernel(l, is_last != 0u ? k : k + 1u, weights + 1);
            put_pairs(l->results, l->results_count, k, is_last, first, count, x, weights, pairs, sums);
        }
    }
}
#else
static void joined(const ternary_t *l) {
    ternary(l);
}
#endif
