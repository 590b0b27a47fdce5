// The image through byte tables: a table of 256 bytes is 16 tables of 16, each one shuffle. A shuffle gives 0 where
// the index is negative, so x, x - 16, x - 32, ... select from tables that hold the difference to the one before:
// what is not reached yet adds nothing. That serves 0..127; x - 128 serves the rest.

constexpr int LOOKUP_BLOCK = 128;  // pixels

// differences[0..7] for 0..127, [8..15] for the others.
INLINE void read_differences(const uint8_t* table, __m256i* differences) {
    for (int i = 0; i < 16; ++i) {
        __m128i part = load128(table + 16 * i);
        if (i % 8) part = _mm_xor_si128(part, load128(table + 16 * (i - 1)));
        differences[i] = _mm256_broadcastsi128_si256(part);
    }
}

INLINE void lookup_block(const uint8_t* codes, const __m256i* differences, uint8_t* out) {
    const __m256i step = _mm256_set1_epi8(16);
    __m256i low[4], high[4], result[4];
    for (int v = 0; v < 4; ++v) {
        low[v] = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(codes + 32 * v));
        high[v] = _mm256_xor_si256(low[v], _mm256_set1_epi8(char(0x80)));
        result[v] = _mm256_xor_si256(_mm256_shuffle_epi8(differences[0], low[v]), _mm256_shuffle_epi8(differences[8], high[v]));
    }
    for (int i = 1; i < 8; ++i)
        for (int v = 0; v < 4; ++v) {
            low[v] = _mm256_subs_epi8(low[v], step);
            high[v] = _mm256_subs_epi8(high[v], step);
            result[v] = _mm256_xor_si256(result[v], _mm256_xor_si256(_mm256_shuffle_epi8(differences[i], low[v]),
                                                                     _mm256_shuffle_epi8(differences[8 + i], high[v])));
        }
    for (int v = 0; v < 4; ++v) store(out + 32 * v, result[v]);
}

// Channel c of 16 pixels is every third of 48 bytes, from the c-th on.
INLINE void split_three(const uint8_t* image, uint8_t (*codes)[LOOKUP_BLOCK]) {
    const auto every_third = [](int c, int part, const __m128i bytes) {
        alignas(16) int8_t index[16];
        for (int i = 0; i < 16; ++i) {
            const int at = 3 * i + c - 16 * part;
            index[i] = int8_t(at >= 0 && at < 16 ? at : -1);
        }
        return _mm_shuffle_epi8(bytes, load128(index));
    };
    for (int p = 0; p < LOOKUP_BLOCK; p += 16) {
        const __m128i a = load128(image + 3 * p), b = load128(image + 3 * p + 16), c = load128(image + 3 * p + 32);
        for (int k = 0; k < 3; ++k)
            store128(codes[k] + p, _mm_or_si128(_mm_or_si128(every_third(k, 0, a), every_third(k, 1, b)), every_third(k, 2, c)));
    }
}

size_t lookup_three(const uint8_t* image, const uint8_t* tables, size_t begin, size_t end, unsigned char* const* out) {
    __m256i differences[3][16];
    for (int c = 0; c < 3; ++c) read_differences(tables + 256 * c, differences[c]);
    for (; begin + LOOKUP_BLOCK <= end; begin += LOOKUP_BLOCK) {
        alignas(32) uint8_t codes[3][LOOKUP_BLOCK];
        split_three(image + 3 * begin, codes);
        for (int c = 0; c < 3; ++c) lookup_block(codes[c], differences[c], out[c] + begin);
    }
    return begin;
}
