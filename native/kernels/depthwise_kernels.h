// One channel, one kernel: pairs of codes times pairs of taps.

void take_even(const uint8_t* from, size_t n, uint8_t* to) {
    size_t i = 0;
    for (; i + 16 < n; i += 16) store(to + i, load_even(from + 2 * i));
    // The last ones end with the last byte that may be read: they are the odd ones from one byte earlier.
    if (n >= 9) {
        if (i == 0) to[i++] = from[0];  // nothing may be read before it
        for (; i < n; i += 8) {
            i = i + 8 < n ? i : n - 8;
            store_odd(to + i, from + 2 * i - 1);
        }
    }
    for (; i < n; ++i) to[i] = from[2 * i];
}

template <bool Signed, int Stride>
void pair_lines_as(const PairLines& p) {
    for (int i = 0; i < p.lines; ++i) {
        const uint8_t *const a = p.above + ptrdiff_t(i) * p.pitch, *const b = p.below + ptrdiff_t(i) * p.pitch;
        int16_t* const out = p.out + ptrdiff_t(i) * 2 * p.out_pitch;
        for (int x = 0; x < p.n; x += LANES) {
            const u8x16 codes_a = Stride == 2 ? load_even(a + 2 * x) : load<u8x16>(a + x);
            const u8x16 codes_b = Stride == 2 ? load_even(b + 2 * x) : load<u8x16>(b + x);
            store(out + 2 * x, widen<Signed>(zip_low(codes_a, codes_b)));
            store(out + 2 * x + LANES, widen<Signed>(zip_high(codes_a, codes_b)));
        }
        for (int x = p.n; x < p.n + p.zeros; ++x) out[2 * x] = out[2 * x + 1] = 0;
    }
}

void pair_lines(const PairLines& p) {
    if (p.stride == 2) (p.is_signed ? pair_lines_as<true, 2> : pair_lines_as<false, 2>)(p);
    else (p.is_signed ? pair_lines_as<true, 1> : pair_lines_as<false, 1>)(p);
}

// Pairs of taps, their weights for one output line and for the next in registers. Not an array: compilers put
// those on the stack.
template <int Taps, bool Two>
struct TapPairs {
    i16x16 weight, next_weight;
    const int16_t* row;
    TapPairs<Taps - 1, Two> rest;

    INLINE void read(const Depthwise& d, int t) {
        weight = broadcast_pair(d.weights + 2 * t);
        if (Two) next_weight = broadcast_pair(d.next_weights + 2 * t);
        row = d.pairs + 2 * d.taps[t];
        rest.read(d, t + 1);
    }
    INLINE void add(ptrdiff_t at, i32x8& sum, i32x8& next_sum) const {
        const i16x16 pairs = load<i16x16>(row + at);
        sum += dot_pairs(pairs, weight);
        if (Two) next_sum += dot_pairs(pairs, next_weight);
        rest.add(at, sum, next_sum);
    }
};

template <bool Two>
struct TapPairs<0, Two> {
    INLINE void read(const Depthwise&, int) {}
    INLINE void add(ptrdiff_t, i32x8&, i32x8&) const {}
};

// Vectors of a line from last to first: what spills into the next line is overwritten by its first vector.
template <int Taps, bool Two>
void depthwise_lines(const Depthwise& d) {
    TapPairs<Taps, Two> taps;
    taps.read(d, 0);
    const ptrdiff_t last = ptrdiff_t(d.width - 1) / 8 * 8, width = d.width;
    int32_t* sums = d.sums;
    for (int y = 0; y < d.height; y += 1 + Two, sums += (1 + Two) * width) {
        const ptrdiff_t line = ptrdiff_t(y / (1 + Two)) * 2 * d.line;
        for (ptrdiff_t x = last; x >= 0; x -= 8) {
            i32x8 sum = {}, next_sum = {};
            taps.add(line + 2 * x, sum, next_sum);
            store(sums + x, sum);
            if (Two && y + 1 < d.height) store(sums + width + x, next_sum);
        }
    }
}

INLINE void depthwise_any(const Depthwise& d) {
    const int step = d.next_weights ? 2 : 1;
    for (int y = 0; y < d.height; ++y) {
        const int16_t* const weights = y % step ? d.next_weights : d.weights;
        for (int x = 0; x < d.width; x += 8) {
            const int16_t* const pairs = d.pairs + 2 * (y / step * d.line + x);
            i32x8 sum = {};
            for (int t = 0; t < d.count; ++t)
                sum += dot_pairs(load<i16x16>(pairs + 2 * d.taps[t]), broadcast_pair(weights + 2 * t));
            store(d.sums + y * d.width + x, sum);
        }
    }
}

void depthwise(const Depthwise& d) {
    if (d.count != 6) return depthwise_any(d);
    d.next_weights ? depthwise_lines<6, true>(d) : depthwise_lines<6, false>(d);  // 3x3
}
