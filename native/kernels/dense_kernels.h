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

// Products of bytes are summed in 16 pixels a vector, those of int16 in eight.
struct ByteProducts {
    using Weight = int8_t;
    using Sum = i16x16;
    using Element = int16_t;
    INLINE static i16x16 broadcast(const Weight* pair) { return broadcast_byte_pair(pair); }
    INLINE static Sum dot(i16x16 codes, i16x16 weights) { return dot_byte_pairs(codes, weights); }
};
struct WordProducts {
    using Weight = int16_t;
    using Sum = i32x8;
    using Element = int32_t;
    INLINE static i16x16 broadcast(const Weight* pair) { return broadcast_pair(pair); }
    INLINE static Sum dot(i16x16 codes, i16x16 weights) { return dot_pairs(codes, weights); }
};

// The sums of some lists, one or two vectors of each, in registers. Not an array: compilers put those on the stack.
template <class Products, int Lists_, bool Two>
struct DenseSums {
    typename Products::Sum first = {}, second = {};
    DenseSums<Products, Lists_ - 1, Two> rest;

    INLINE void add(i16x16 a, i16x16 b, const typename Products::Weight* weights) {
        const i16x16 weight = Products::broadcast(weights);
        first += Products::dot(a, weight);
        if (Two) second += Products::dot(b, weight);
        rest.add(a, b, weights + 2);
    }
    INLINE void write(typename Products::Element* sums, size_t stride) const {
        store(sums, first);
        if (Two) store(sums + sizeof first / sizeof *sums, second);
        rest.write(sums + stride, stride);
    }
};

template <class Products, bool Two>
struct DenseSums<Products, 0, Two> {
    INLINE void add(i16x16, i16x16, const typename Products::Weight*) {}
    INLINE void write(typename Products::Element*, size_t) const {}
};

template <class Products, int Lists_, bool Two>
INLINE void dense_of(const void* x, size_t pair_bytes, const typename Products::Weight* weights, int pairs, size_t stride,
                     typename Products::Element* sums) {
    DenseSums<Products, Lists_, Two> sum;
    const char* codes = static_cast<const char*>(x);
    for (int p = 0; p < pairs; ++p, codes += pair_bytes, weights += 2 * DENSE_LISTS)
        sum.add(load<i16x16>(codes), load<i16x16>(codes + (Two ? 32 : 0)), weights);
    sum.write(sums, stride);
}

template <int Lists_>
void dense_bytes_for(const uint8_t* x, const int8_t* weights, int pairs, int vectors, size_t stride, int16_t* sums) {
    const size_t pair_bytes = size_t(vectors) * 2 * LANES;
    int v = 0;
    for (; v + 2 <= vectors; v += 2)
        dense_of<ByteProducts, Lists_, true>(x + v * 2 * LANES, pair_bytes, weights, pairs, stride, sums + v * LANES);
    if (v < vectors)
        dense_of<ByteProducts, Lists_, false>(x + v * 2 * LANES, pair_bytes, weights, pairs, stride, sums + v * LANES);
}

template <int Lists_>
void dense_words_for(const int16_t* x, const int16_t* weights, int pairs, int vectors, size_t stride, int32_t* sums) {
    const size_t pair_bytes = size_t(vectors) * 4 * LANES;
    for (int v = 0; v < vectors; ++v)
        dense_of<WordProducts, Lists_, true>(x + v * 2 * LANES, pair_bytes, weights, pairs, stride, sums + v * LANES);
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
