// Products of pairs of rows with pairs of weights, up to six sums and two vectors at a time in registers.

void pair_bytes(const uint8_t* const* rows, int count, size_t pixel, int vectors, uint8_t* out) {
    static const uint8_t zeros[LANES] = {};
    for (int first = 0; first < count; first += 2)
        for (int v = 0; v < vectors; ++v, out += 2 * LANES) {
            const uint8_t* second = first + 1 < count ? rows[first + 1] + pixel + v * LANES : zeros;
            const u8x16 a = load<u8x16>(rows[first] + pixel + v * LANES), b = load<u8x16>(second);
            store(out, zip_low(a, b));
            store(out + LANES, zip_high(a, b));
        }
}

template <bool Signed>
void pair_words_as(const uint8_t* const* rows, int count, size_t pixel, int vectors, int16_t* out) {
    static const uint8_t zeros[LANES] = {};
    for (int first = 0; first < count; first += 2)
        for (int v = 0; v < vectors; ++v, out += 2 * LANES) {
            const uint8_t* second = first + 1 < count ? rows[first + 1] + pixel + v * LANES : zeros;
            const u8x16 a = load<u8x16>(rows[first] + pixel + v * LANES), b = load<u8x16>(second);
            store(out, widen<Signed>(zip_low(a, b)));
            store(out + LANES, widen<Signed>(zip_high(a, b)));
        }
}

void pair_words(const uint8_t* const* rows, int count, bool is_signed, size_t pixel, int vectors, int16_t* out) {
    (is_signed ? pair_words_as<true> : pair_words_as<false>)(rows, count, pixel, vectors, out);
}

template <int Lists_, int V>
void dense_bytes_of(const uint8_t* x, size_t pair_stride, const int8_t* weights, int pairs, size_t stride,
                    int16_t* sums) {
    i16x16 sum[Lists_][V] = {};
    for (int p = 0; p < pairs; ++p, x += pair_stride, weights += 2 * DENSE_LISTS) {
        i16x16 codes[V];
        for (int v = 0; v < V; ++v) codes[v] = load<i16x16>(x + 32 * v);
        for (int l = 0; l < Lists_; ++l) {
            const i16x16 weight = broadcast_byte_pair(weights + 2 * l);
            for (int v = 0; v < V; ++v) sum[l][v] += dot_byte_pairs(codes[v], weight);
        }
    }
    for (int l = 0; l < Lists_; ++l)
        for (int v = 0; v < V; ++v) store(sums + size_t(l) * stride + size_t(v) * LANES, sum[l][v]);
}

// Eight pixels a vector here: sums are 32 bits wide.
template <int Lists_, int V>
void dense_words_of(const int16_t* x, size_t pair_stride, const int16_t* weights, int pairs, size_t stride,
                    int32_t* sums) {
    i32x8 sum[Lists_][V] = {};
    for (int p = 0; p < pairs; ++p, x += pair_stride, weights += 2 * DENSE_LISTS) {
        i16x16 codes[V];
        for (int v = 0; v < V; ++v) codes[v] = load<i16x16>(x + 16 * v);
        for (int l = 0; l < Lists_; ++l) {
            const i16x16 weight = broadcast_pair(weights + 2 * l);
            for (int v = 0; v < V; ++v) sum[l][v] += dot_pairs(codes[v], weight);
        }
    }
    for (int l = 0; l < Lists_; ++l)
        for (int v = 0; v < V; ++v) store(sums + size_t(l) * stride + size_t(v) * 8, sum[l][v]);
}

template <int Lists_>
void dense_bytes_for(const uint8_t* x, const int8_t* weights, int pairs, int vectors, size_t stride, int16_t* sums) {
    const size_t pair_stride = size_t(vectors) * 2 * LANES;
    int v = 0;
    for (; v + 2 <= vectors; v += 2)
        dense_bytes_of<Lists_, 2>(x + v * 2 * LANES, pair_stride, weights, pairs, stride, sums + v * LANES);
    if (v < vectors)
        dense_bytes_of<Lists_, 1>(x + v * 2 * LANES, pair_stride, weights, pairs, stride, sums + v * LANES);
}

template <int Lists_>
void dense_words_for(const int16_t* x, const int16_t* weights, int pairs, int vectors, size_t stride, int32_t* sums) {
    const size_t pair_stride = size_t(vectors) * 2 * LANES;
    for (int v = 0; v < vectors; ++v)
        dense_words_of<Lists_, 2>(x + v * 2 * LANES, pair_stride, weights, pairs, stride, sums + v * LANES);
}

void dense_bytes(const uint8_t* x, const int8_t* weights, int pairs, int lists, int vectors, size_t stride,
                 int16_t* sums) {
    switch (lists) {
        case 1: return dense_bytes_for<1>(x, weights, pairs, vectors, stride, sums);
        case 2: return dense_bytes_for<2>(x, weights, pairs, vectors, stride, sums);
        case 3: return dense_bytes_for<3>(x, weights, pairs, vectors, stride, sums);
        case 4: return dense_bytes_for<4>(x, weights, pairs, vectors, stride, sums);
        case 5: return dense_bytes_for<5>(x, weights, pairs, vectors, stride, sums);
        default: return dense_bytes_for<6>(x, weights, pairs, vectors, stride, sums);
    }
}

void dense_words(const int16_t* x, const int16_t* weights, int pairs, int lists, int vectors, size_t stride,
                 int32_t* sums) {
    switch (lists) {
        case 1: return dense_words_for<1>(x, weights, pairs, vectors, stride, sums);
        case 2: return dense_words_for<2>(x, weights, pairs, vectors, stride, sums);
        case 3: return dense_words_for<3>(x, weights, pairs, vectors, stride, sums);
        case 4: return dense_words_for<4>(x, weights, pairs, vectors, stride, sums);
        case 5: return dense_words_for<5>(x, weights, pairs, vectors, stride, sums);
        default: return dense_words_for<6>(x, weights, pairs, vectors, stride, sums);
    }
}

// Lanes along the inputs, four outputs at a time: x is loaded once for all of them. Weights are read once, in order
// but for the four rows at a time; memory is told of every line two such blocks ahead.
template <int Count>
INLINE void dots_of(const int16_t* x, const int8_t* weights, size_t n, int32_t* out) {
    i32x8 sum[Count] = {};
    for (size_t i = 0; i < n; i += 16) {
        const i16x16 codes = load<i16x16>(x + i);
        __builtin_prefetch(weights + 2 * Count * n + Count * i);
        for (int k = 0; k < Count; ++k)
            sum[k] += dot_pairs(codes, load_codes<true>(reinterpret_cast<const uint8_t*>(weights + k * n + i)));
    }
    for (int k = 0; k < Count; ++k) {
        out[k] = 0;
        for (int lane = 0; lane < 8; ++lane) out[k] += sum[k][lane];
    }
}

void dots(const int16_t* x, const int8_t* weights, size_t n, int count, int32_t* out) {
    int k = 0;
    for (; k + 4 <= count; k += 4) dots_of<4>(x, weights + k * n, n, out + k);
    for (; k < count; ++k) dots_of<1>(x, weights + k * n, n, out + k);
}
