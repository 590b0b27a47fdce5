// One channel, one kernel: pairs of codes times pairs of taps.

void take_even(const uint8_t* from, size_t n, uint8_t* to) {
    size_t i = 0;
    for (; i + 16 < n; i += 16) store_even(to + i, from + 2 * i);
    // The last ones end with the last byte that may be read: they are the odd ones from one byte earlier.
    if (n >= 9)
        for (; i < n; i += 8) {
            i = i + 8 < n ? i : n - 8;
            store_odd(to + i, from + 2 * i - 1);
        }
    for (; i < n; ++i) to[i] = from[2 * i];
}

template <bool Signed>
INLINE void pair_rows_as(const uint8_t* a, const uint8_t* b, size_t n, int16_t* out) {
    for (size_t x = 0; x < n; x += LANES) {
        uint8_t pairs[2 * LANES];
        store_pairs(pairs, a + x, b + x);
        store(out + 2 * x, load_codes<Signed>(pairs));
        store(out + 2 * x + LANES, load_codes<Signed>(pairs + LANES));
    }
}

void pair_rows(const uint8_t* a, const uint8_t* b, bool is_signed, size_t n, int16_t* out) {
    (is_signed ? pair_rows_as<true> : pair_rows_as<false>)(a, b, n, out);
}

// Six pairs of taps, the 3x3 kernel: weights and positions stay in registers.
INLINE void depthwise_3x3(const Depthwise& d) {
    i16x16 weight[6];
    const int16_t* row[6];
    for (int t = 0; t < 6; ++t) {
        weight[t] = broadcast_pair(d.weights + 2 * t);
        row[t] = d.pairs + 2 * d.taps[t];
    }
    int32_t* sums = d.sums;
    for (int y = 0; y < d.height; ++y, sums += d.width) {
        const size_t line = size_t(y) * size_t(2 * d.line);
        for (size_t x = 0; x < size_t(d.width); x += 8) {
            i32x8 sum = dot_pairs(load<i16x16>(row[0] + line + 2 * x), weight[0]);
            for (int t = 1; t < 6; ++t) sum += dot_pairs(load<i16x16>(row[t] + line + 2 * x), weight[t]);
            store(sums + x, sum);
        }
    }
}

void depthwise(const Depthwise& d) {
    if (d.count == 6) return depthwise_3x3(d);
    for (int y = 0; y < d.height; ++y)
        for (int x = 0; x < d.width; x += 8) {
            const int16_t* const pairs = d.pairs + 2 * (y * d.line + x);
            i32x8 sum = {};
            for (int t = 0; t < d.count; ++t)
                sum += dot_pairs(load<i16x16>(pairs + 2 * d.taps[t]), broadcast_pair(d.weights + 2 * t));
            store(d.sums + y * d.width + x, sum);
        }
}
