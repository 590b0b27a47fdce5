// Vectors of 32 bytes in the compiler's own notation, and the few operations it has no notation for.
// Included once, inside an unnamed namespace, by the file of each instruction set.

#define INLINE inline __attribute__((always_inline))

typedef uint8_t u8x16 __attribute__((vector_size(16)));
typedef uint8_t u8x32 __attribute__((vector_size(32)));
typedef int16_t i16x16 __attribute__((vector_size(32)));
typedef int32_t i32x8 __attribute__((vector_size(32)));
typedef float f32x8 __attribute__((vector_size(32)));

template <class V>
INLINE V load(const void* p) {
    V v;
    std::memcpy(&v, p, sizeof v);
    return v;
}

template <class V>
INLINE void store(void* p, V v) {
    std::memcpy(p, &v, sizeof v);
}

#if defined(__AVX2__)

// sum += or -= the vector at table + position + Offset: one instruction, with no others to compute the address.
template <bool Add, int Offset>
INLINE void add_at(i16x16& sum, const unsigned char* table, uint64_t position) {
    const auto& memory = *reinterpret_cast<const unsigned char(*)[1 << 16]>(table);
    if (Add) asm("vpaddw %c3(%1,%2), %0, %0" : "+x"(sum) : "r"(table), "r"(position), "i"(Offset), "m"(memory));
    else asm("vpsubw %c3(%1,%2), %0, %0" : "+x"(sum) : "r"(table), "r"(position), "i"(Offset), "m"(memory));
}

INLINE __m256i bits(i16x16 v) { return reinterpret_cast<__m256i>(v); }
INLINE __m256i bits(i32x8 v) { return reinterpret_cast<__m256i>(v); }
INLINE __m128i load128(const void* p) { return _mm_loadu_si128(static_cast<const __m128i*>(p)); }
INLINE void store128(void* p, __m128i v) { _mm_storeu_si128(static_cast<__m128i*>(p), v); }

INLINE __m128i bits(u8x16 v) { return reinterpret_cast<__m128i>(v); }

template <bool Signed>
INLINE i16x16 widen(u8x16 v) {
    return reinterpret_cast<i16x16>(Signed ? _mm256_cvtepi8_epi16(bits(v)) : _mm256_cvtepu8_epi16(bits(v)));
}

INLINE i32x8 widen_low(i16x16 v) {
    return reinterpret_cast<i32x8>(_mm256_cvtepi16_epi32(_mm256_castsi256_si128(bits(v))));
}
INLINE i32x8 widen_high(i16x16 v) {
    return reinterpret_cast<i32x8>(_mm256_cvtepi16_epi32(_mm256_extracti128_si256(bits(v), 1)));
}
INLINE i32x8 load_widened(const int16_t* p) {
    return reinterpret_cast<i32x8>(_mm256_cvtepi16_epi32(load128(p)));
}

// 32 codes, with saturation: values too large become the largest code. The order of the lanes is put
// right once for all.
template <bool Signed>
INLINE u8x32 narrow_codes(i32x8 a, i32x8 b, i32x8 c, i32x8 d) {
    const __m256i first = _mm256_packs_epi32(bits(a), bits(b)), second = _mm256_packs_epi32(bits(c), bits(d));
    const __m256i codes = Signed ? _mm256_packs_epi16(first, second) : _mm256_packus_epi16(first, second);
    return reinterpret_cast<u8x32>(_mm256_permutevar8x32_epi32(codes, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7)));
}
INLINE u8x16 first_half(u8x32 v) {
    return reinterpret_cast<u8x16>(_mm256_castsi256_si128(reinterpret_cast<__m256i>(v)));
}
template <bool Signed>
INLINE u8x32 clamp_codes(u8x32 v, u8x32 low, u8x32 high) {
    const __m256i x = reinterpret_cast<__m256i>(v), l = reinterpret_cast<__m256i>(low), h = reinterpret_cast<__m256i>(high);
    return reinterpret_cast<u8x32>(Signed ? _mm256_min_epi8(_mm256_max_epi8(x, l), h)
                                          : _mm256_min_epu8(_mm256_max_epu8(x, l), h));
}

INLINE i32x8 round_half_even(f32x8 v) {
    return reinterpret_cast<i32x8>(_mm256_cvtps_epi32(reinterpret_cast<__m256>(v)));
}
INLINE f32x8 smaller(f32x8 a, f32x8 b) {
    return reinterpret_cast<f32x8>(_mm256_min_ps(reinterpret_cast<__m256>(a), reinterpret_cast<__m256>(b)));
}
INLINE f32x8 larger(f32x8 a, f32x8 b) {
    return reinterpret_cast<f32x8>(_mm256_max_ps(reinterpret_cast<__m256>(a), reinterpret_cast<__m256>(b)));
}

// a[2i] * b[2i] + a[2i+1] * b[2i+1] in 32 bits.
INLINE i32x8 dot_pairs(i16x16 a, i16x16 b) { return reinterpret_cast<i32x8>(_mm256_madd_epi16(bits(a), bits(b))); }
// The same for 16 pairs of bytes: codes unsigned, weights signed; exact while the sum fits int16.
INLINE i16x16 dot_byte_pairs(i16x16 codes, i16x16 weights) {
    return reinterpret_cast<i16x16>(_mm256_maddubs_epi16(bits(codes), bits(weights)));
}

// a0 b0 a1 b1 ..., of the first and of the last eight.
INLINE u8x16 zip_low(u8x16 a, u8x16 b) { return reinterpret_cast<u8x16>(_mm_unpacklo_epi8(bits(a), bits(b))); }
INLINE u8x16 zip_high(u8x16 a, u8x16 b) { return reinterpret_cast<u8x16>(_mm_unpackhi_epi8(bits(a), bits(b))); }

// Every second of 32 bytes, and of 16 bytes the others.
INLINE u8x16 load_even(const uint8_t* from) {
    const __m128i even = _mm_set1_epi16(0xff);
    return reinterpret_cast<u8x16>(
        _mm_packus_epi16(_mm_and_si128(load128(from), even), _mm_and_si128(load128(from + 16), even)));
}
INLINE void store_odd(uint8_t* to, const uint8_t* from) {
    const __m128i odd = _mm_srli_epi16(load128(from), 8);
    _mm_storel_epi64(reinterpret_cast<__m128i*>(to), _mm_packus_epi16(odd, odd));
}

#endif

// 16 codes, widened.
template <bool Signed>
INLINE i16x16 load_codes(const uint8_t* p) {
    return widen<Signed>(load<u8x16>(p));
}

INLINE i16x16 broadcast16(int16_t x) { return x - i16x16{}; }
INLINE f32x8 broadcast(float x) { return x - f32x8{}; }
INLINE f32x8 to_float(i32x8 v) { return __builtin_convertvector(v, f32x8); }
// A pair of bytes or of int16, repeated.
INLINE i16x16 broadcast_byte_pair(const int8_t* pair) {
    int16_t both;
    std::memcpy(&both, pair, 2);
    return broadcast16(both);
}
INLINE i16x16 broadcast_pair(const int16_t* pair) {
    int32_t both;
    std::memcpy(&both, pair, 4);
    return reinterpret_cast<i16x16>(both - i32x8{});
}
