// The requantization formula, 16 pixels at a time.

struct Sixteen {
    i32x8 low, high;
};

template <bool Chunked>
INLINE Sixteen load_sums(const int16_t* p, const Finish& f) {
    Sixteen s = {load_widened(p), load_widened(p + 8)};
    for (int c = 1; Chunked && c < f.chunks; ++c) {
        p += f.chunk_stride;
        s.low += load_widened(p);
        s.high += load_widened(p + 8);
    }
    return s;
}
template <bool>
INLINE Sixteen load_sums(const int32_t* p, const Finish&) {
    return {load<i32x8>(p), load<i32x8>(p + 8)};
}

// Clamping after rounding is the same as before it, with rounded bounds, as long as t fits int32:
// rounding is monotone. Saturating packs then do most of the clamping.
struct Writer {
    const f32x8 low, high;
    const i16x16 lowest, highest;

    INLINE explicit Writer(const Finish& f)
        : low(broadcast(f.low)), high(broadcast(f.high)), lowest(narrow(round_half_even(low), round_half_even(low))),
          highest(narrow(round_half_even(high), round_half_even(high))) {}

    template <Type T>
    INLINE void write(f32x8 a, f32x8 b, bool bounded, unsigned char* plane, size_t pixel) const {
        if (T == Type::F32) {
            store(plane + 4 * pixel, a);
            store(plane + 4 * pixel + 32, b);
            return;
        }
        if (!bounded || T == Type::I32) {
            a = smaller(larger(a, low), high);
            b = smaller(larger(b, low), high);
        }
        if (T == Type::I32) {
            store(plane + 4 * pixel, round_half_even(a));
            store(plane + 4 * pixel + 32, round_half_even(b));
            return;
        }
        const i16x16 codes =
            smaller(larger(narrow(round_half_even(a), round_half_even(b)), lowest), highest);
        if (T == Type::U8) store_codes<false>(plane + pixel, codes);
        if (T == Type::I8) store_codes<true>(plane + pixel, codes);
    }
};

// t before the offset, for 16 pixels: one branch after the other.
struct Terms {
    f32x8 low, high;

    template <bool Chunked, class Sum>
    INLINE static Terms of(const Sum* sums, f32x8 scale, const Finish& f) {
        const Sixteen s = load_sums<Chunked>(sums, f);
        return {to_float(s.low) * scale, to_float(s.high) * scale};
    }
    INLINE void add(const Terms& other) {
        low += other.low;
        high += other.high;
    }
};

template <Type T, int Branches, bool Chunked, class Sum>
void finish_as(const Finish& f) {
    const Writer writer(f);
    const bool bounded = f.bounded;
    const size_t stride = f.stride;
    const Sum* sums = static_cast<const Sum*>(f.sums);
    for (int k = 0; k < f.channels; ++k, sums += Branches * stride) {
        const float* const scales = f.scale + k * Branches;
        const f32x8 scale0 = broadcast(scales[0]), scale1 = broadcast(scales[Branches > 1 ? 1 : 0]),
                    scale2 = broadcast(scales[Branches > 2 ? 2 : 0]), offset = broadcast(f.offset[k]);
        unsigned char* const out = f.out[k];
        for (size_t p = 0; p < size_t(f.vectors) * LANES; p += LANES) {
            Terms t = Terms::of<Chunked>(sums + p, scale0, f);
            if (Branches > 1) t.add(Terms::of<Chunked>(sums + stride + p, scale1, f));
            if (Branches > 2) t.add(Terms::of<Chunked>(sums + 2 * stride + p, scale2, f));
            writer.write<T>(t.low + offset, t.high + offset, bounded, out, f.pixel + p);
        }
    }
}

template <int Branches, bool Chunked, class Sum>
void finish_type(const Finish& f) {
    switch (f.type) {
        case Type::U8: return finish_as<Type::U8, Branches, Chunked, Sum>(f);
        case Type::I8: return finish_as<Type::I8, Branches, Chunked, Sum>(f);
        case Type::I32: return finish_as<Type::I32, Branches, Chunked, Sum>(f);
        case Type::F32: return finish_as<Type::F32, Branches, Chunked, Sum>(f);
    }
}

template <int Branches, class Sum>
void finish_branches(const Finish& f) {
    f.chunks > 1 ? finish_type<Branches, true, Sum>(f) : finish_type<Branches, false, Sum>(f);
}

template <class Sum>
void finish(const Finish& f) {
    switch (f.branches) {
        case 1: return finish_branches<1, Sum>(f);
        case 2: return finish_branches<2, Sum>(f);
        default: return finish_branches<3, Sum>(f);
    }
}

INLINE Sixteen load_plane(Type type, const unsigned char* plane, size_t pixel) {
    if (type == Type::I32) return {load<i32x8>(plane + 4 * pixel), load<i32x8>(plane + 4 * pixel + 32)};
    const i16x16 codes = type == Type::U8 ? load_codes<false>(plane + pixel) : load_codes<true>(plane + pixel);
    return {widen_low(codes), widen_high(codes)};
}

template <Type T>
void combine_as(const unsigned char* const* in, const Type* types, size_t pixels, const Finish& f) {
    const Writer writer(f);
    const f32x8 offset = broadcast(f.offset[0]), scale0 = broadcast(f.scale[0]), scale1 = broadcast(f.scale[f.branches - 1]);
    for (size_t p = 0; p < pixels; p += LANES) {
        const Sixteen s = load_plane(types[0], in[0], p);
        f32x8 a = to_float(s.low) * scale0, b = to_float(s.high) * scale0;
        if (f.branches == 2) {
            const Sixteen t = load_plane(types[1], in[1], p);
            a += to_float(t.low) * scale1;
            b += to_float(t.high) * scale1;
        }
        writer.write<T>(a + offset, b + offset, f.bounded, f.out[0], p);
    }
}

void combine(const unsigned char* const* in, const Type* types, size_t pixels, const Finish& f) {
    switch (f.type) {
        case Type::U8: return combine_as<Type::U8>(in, types, pixels, f);
        case Type::I8: return combine_as<Type::I8>(in, types, pixels, f);
        case Type::I32: return combine_as<Type::I32>(in, types, pixels, f);
        case Type::F32: return combine_as<Type::F32>(in, types, pixels, f);
    }
}
