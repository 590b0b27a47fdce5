// 3x3 kernels over whole planes: the usual depthwise convolution, from codes to codes without sums in memory.
//
// Planes are copied once, padded, and then read as flat arrays: taps are constant distances, and outputs are
// computed for every position, a few columns beyond the end of each line included; these are dropped when lines
// are copied to the output. Bytes of neighbouring columns are pairs already: the products of (x, x + 1), (x + 2,
// x + 3), ... are 16 sums with one instruction, those of even columns; those of odd columns are read one byte
// later, and not needed with a stride of 2. Weights are split, w = 16 * high + low, both in -8..8, so that sums of
// nine products fit 16 bits.

INLINE __m256i load256(const void* p) { return _mm256_loadu_si256(static_cast<const __m256i*>(p)); }

// Weights are in registers, which leaves few: one vector of codes is used up before the next is loaded.
struct Split3x3 {
    __m256i low[5], high[5], bias;
    const uint8_t *above, *middle, *below;

    // The pairs: two columns of each line, then the third column of the first two lines, then what is left.
    INLINE void read(const int16_t* weights) {
        for (int i = 0; i < 5; ++i) low[i] = _mm256_set1_epi16(weights[i]);
        for (int i = 0; i < 5; ++i) high[i] = _mm256_set1_epi16(weights[5 + i]);
        bias = _mm256_set1_epi16(weights[10]);
    }
    template <int Pair>
    INLINE void multiply(__m256i codes, __m256i& low_sums, __m256i& high_sums) const {
        asm("" : "+x"(codes));  // not to be loaded twice
        const __m256i a = _mm256_maddubs_epi16(codes, low[Pair]), b = _mm256_maddubs_epi16(codes, high[Pair]);
        low_sums = Pair ? _mm256_add_epi16(low_sums, a) : a;
        high_sums = Pair ? _mm256_add_epi16(high_sums, b) : b;
    }
};

struct Formula3x3 {
    __m256 scale, offset;
    __m256i lowest, highest;  // int16

    INLINE __m256i rounded(__m256i sums) const {
        return _mm256_cvtps_epi32(_mm256_add_ps(_mm256_mul_ps(_mm256_cvtepi32_ps(sums), scale), offset));
    }
};

// 16 outputs, as int16: those whose windows begin at p, p + 2, ...
template <bool SignedIn, bool SignedOut>
INLINE __m256i sixteen_3x3(const Split3x3& s, const Formula3x3& f, ptrdiff_t p) {
    const __m256i odd = _mm256_set1_epi16(int16_t(0xff00));
    __m256i low, high;
    s.multiply<0>(load256(s.above + p), low, high);
    s.multiply<1>(load256(s.middle + p), low, high);
    s.multiply<2>(load256(s.below + p), low, high);
    s.multiply<3>(_mm256_blendv_epi8(load256(s.above + p + 2), load256(s.middle + p + 1), odd), low, high);
    s.multiply<4>(load256(s.below + p + 2), low, high);
    if (SignedIn) high = _mm256_add_epi16(high, s.bias);
    // low + 16 * high; packing below undoes the order of unpacking.
    const __m256i factors = _mm256_set1_epi32(16 << 16 | 1);
    const __m256i a = f.rounded(_mm256_madd_epi16(_mm256_unpacklo_epi16(low, high), factors));
    const __m256i b = f.rounded(_mm256_madd_epi16(_mm256_unpackhi_epi16(low, high), factors));
    if (!SignedOut) return _mm256_min_epu16(_mm256_packus_epi32(a, b), f.highest);
    return _mm256_min_epi16(_mm256_max_epi16(_mm256_packs_epi32(a, b), f.lowest), f.highest);
}

// Codes to a padded plane; signed ones as unsigned ones, 128 larger. Lines are written in whole vectors; what spills
// is made padding again, or overwritten by the next line. Lines near the end of the plane are read exactly.
// `d` is a copy: no byte that is stored may be part of it, so its members stay in registers.
template <bool SignedIn, int Stride>
INLINE void pad_plane(const Depthwise3x3 d, const uint8_t* from, uint8_t* padded) {
    const __m128i padding = _mm_set1_epi8(SignedIn ? char(0x80) : char(0));
    const auto copy16 = [&](uint8_t* to, const uint8_t* codes) {
        store128(to, SignedIn ? _mm_xor_si128(load128(codes), padding) : load128(codes));
    };
    const int n = d.copied_columns;
    const auto line_at = [&](int line) {
        return padded + (Stride == 1 ? line * d.line : line / 2 * d.line + line % 2 * d.odd_lines) + d.pad_left;
    };
    // This line, and with a stride of 2 the next one: those after them are one line further on.
    uint8_t *to = line_at(d.pad_top), *next = line_at(d.pad_top + 1);
    for (int y = 0; y < d.copied_lines; ++y, from += d.in_width) {
        int x = 0;
        if (y < d.readable_lines) {
            for (; x < n; x += 16) copy16(to + x, from + x);
        } else {
            for (; x + 16 <= n; x += 16) copy16(to + x, from + x);
            for (; x < n; ++x) to[x] = uint8_t(from[x] ^ (SignedIn ? 0x80 : 0));
        }
        store128(to + n, padding);
        to += d.line;
        if (Stride == 2) {
            uint8_t* const after = to;
            to = next;
            next = after;
        }
    }
}

// n flat outputs.
template <bool SignedIn, bool SignedOut, int Stride>
INLINE void plane_3x3(const Depthwise3x3 d, int k, const uint8_t* padded, int n, uint8_t* out) {
    Split3x3 s;
    s.read(d.weights + ptrdiff_t(k) * DEPTHWISE_3X3_WEIGHTS);
    s.above = padded;
    s.middle = padded + (Stride == 1 ? d.line : d.odd_lines);
    s.below = padded + (Stride == 1 ? 2 : 1) * d.line;
    const Formula3x3 f = {_mm256_set1_ps(d.scale[k]), _mm256_set1_ps(d.offset[k]), _mm256_set1_epi16(d.lowest),
                          _mm256_set1_epi16(d.highest)};
    for (ptrdiff_t p = 0; p < n; p += 32) {
        const ptrdiff_t first = Stride * p;
        const __m256i a = sixteen_3x3<SignedIn, SignedOut>(s, f, first);
        const __m256i b = sixteen_3x3<SignedIn, SignedOut>(s, f, first + (Stride == 1 ? 1 : 32));
        if (Stride == 1) {
            const __m256i even = _mm256_set1_epi16(0xff);
            store(out + p, _mm256_or_si256(SignedOut ? _mm256_and_si256(a, even) : a, _mm256_slli_epi16(b, 8)));
        } else {
            const __m256i both = SignedOut ? _mm256_packs_epi16(a, b) : _mm256_packus_epi16(a, b);
            store(out + p, _mm256_permute4x64_epi64(both, 0xD8));
        }
    }
}

// Lines of flat outputs to the output plane, the columns between them dropped.
INLINE void drop_columns(const Depthwise3x3 d, const uint8_t* flat, int first, int lines, uint8_t* plane) {
    const int width = d.out_width;
    uint8_t* to = plane + ptrdiff_t(first) * width;
    for (int y = first; y < first + lines; ++y, flat += d.out_line, to += width) {
        int x = 0;
        if (y < d.writable_lines) {
            for (; x < width; x += 16) store128(to + x, load128(flat + x));
        } else {
            for (; x + 16 <= width; x += 16) store128(to + x, load128(flat + x));
            for (; x < width; ++x) to[x] = flat[x];
        }
    }
}

// A few channels at a time: what is stored is read much later, when the store has long been done.
template <bool SignedIn, bool SignedOut, int Stride>
void depthwise_3x3_as(const Depthwise3x3& job, int begin, int end, unsigned char* const* in, unsigned char* const* out,
                      unsigned char* scratch) {
    const Depthwise3x3 d = job;
    unsigned char* const flat = scratch + ptrdiff_t(d.batch) * d.padded_bytes;
    std::memset(scratch, SignedIn ? 0x80 : 0, size_t(d.batch) * size_t(d.padded_bytes));
    for (int c = begin; c < end; c += d.batch) {
        const int count = c + d.batch < end ? d.batch : end - c;
        for (int i = 0; i < count; ++i)
            pad_plane<SignedIn, Stride>(d, in[c + i], scratch + ptrdiff_t(i) * d.padded_bytes);
        for (int m = 0; m < d.multiplier; ++m)
            for (int first = 0; first < d.out_height; first += d.band) {
                const int lines = first + d.band < d.out_height ? d.band : d.out_height - first;
                const int n = (lines - 1) * d.out_line + d.out_width;
                for (int i = 0; i < count; ++i)
                    plane_3x3<SignedIn, SignedOut, Stride>(
                        d, (c + i) * d.multiplier + m, scratch + ptrdiff_t(i) * d.padded_bytes + ptrdiff_t(first) * d.line,
                        n, flat + ptrdiff_t(i) * d.flat_bytes);
                for (int i = 0; i < count; ++i)
                    drop_columns(d, flat + ptrdiff_t(i) * d.flat_bytes, first, lines, out[(c + i) * d.multiplier + m]);
            }
    }
}

template <int Stride>
void depthwise_3x3_by(const Depthwise3x3& d, int begin, int end, unsigned char* const* in, unsigned char* const* out,
                      unsigned char* scratch) {
    const auto kernel = d.signed_in ? d.signed_out ? depthwise_3x3_as<true, true, Stride> : depthwise_3x3_as<true, false, Stride>
                        : d.signed_out ? depthwise_3x3_as<false, true, Stride> : depthwise_3x3_as<false, false, Stride>;
    kernel(d, begin, end, in, out, scratch);
}

void depthwise_3x3(const Depthwise3x3& d, int begin, int end, unsigned char* const* in, unsigned char* const* out,
                   unsigned char* scratch) {
    (d.stride == 1 ? depthwise_3x3_by<1> : depthwise_3x3_by<2>)(d, begin, end, in, out, scratch);
}
