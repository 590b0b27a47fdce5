// The requantization formula, 16 or 32 pixels at a time.

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

// t of 16 pixels.
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
    INLINE void add(f32x8 offset) {
        low += offset;
        high += offset;
    }
    INLINE void clamp(f32x8 lowest, f32x8 highest) {
        low = smaller(larger(low, lowest), highest);
        high = smaller(larger(high, lowest), highest);
    }
};

// Clamping after rounding is the same as before it, with rounded bounds, as long as t fits int32, and clamping
// after saturating is the same, with saturated bounds: rounding and saturating are monotone.
template <Type T>
struct Writer {
    static constexpr bool IS_SIGNED = T == Type::I8;
    const f32x8 low, high;
    const u8x32 lowest, highest;
    const bool bounded;

    INLINE explicit Writer(const Finish& f)
        : low(broadcast(f.low)), high(broadcast(f.high)), lowest(code(low)), highest(code(high)), bounded(f.bounded) {}

    INLINE static u8x32 code(f32x8 bound) {
        const i32x8 rounded = round_half_even(bound);
        return narrow_codes<IS_SIGNED>(rounded, rounded, rounded, rounded);
    }

    INLINE void write(Terms t, unsigned char* plane, size_t pixel) const {
        if (T == Type::F32) {
            store(plane + 4 * pixel, t.low);
            store(plane + 4 * pixel + 32, t.high);
        } else if (T == Type::I32) {
            t.clamp(low, high);
            store(plane + 4 * pixel, round_half_even(t.low));
            store(plane + 4 * pixel + 32, round_half_even(t.high));
        } else {
            store(plane + pixel, first_half(codes(t, t)));
        }
    }
    // 32 pixels: codes are narrowed to bytes with full vectors.
    INLINE void write(Terms t, Terms next, unsigned char* plane, size_t pixel) const {
        if (T == Type::U8 || T == Type::I8) return store(plane + pixel, codes(t, next));
        write(t, plane, pixel);
        write(next, plane, pixel + LANES);
    }

private:
    INLINE u8x32 codes(Terms t, Terms next) const {
        if (!bounded) {
            t.clamp(low, high);
            next.clamp(low, high);
        }
        const u8x32 rounded = narrow_codes<IS_SIGNED>(round_half_even(t.low), round_half_even(t.high),
                                                      round_half_even(next.low), round_half_even(next.high));
        return clamp_codes<IS_SIGNED>(rounded, lowest, highest);
    }
};

template <Type T, int Branches, bool Chunked, class Sum>
void finish_as(const Finish& f) {
    const Writer<T> writer(f);
    const size_t stride = f.stride, pixels = size_t(f.vectors) * LANES;
    const Sum* sums = static_cast<const Sum*>(f.sums);
    for (int k = 0; k < f.channels; ++k, sums += Branches * stride) {
        const float* const scales = f.scale + k * Branches;
        const f32x8 scale0 = broadcast(scales[0]), scale1 = broadcast(scales[Branches > 1 ? 1 : 0]),
                    scale2 = broadcast(scales[Branches > 2 ? 2 : 0]), offset = broadcast(f.offset[k]);
        const auto terms = [&](size_t p) {
            Terms t = Terms::of<Chunked>(sums + p, scale0, f);
            if (Branches > 1) t.add(Terms::of<Chunked>(sums + stride + p, scale1, f));
            if (Branches > 2) t.add(Terms::of<Chunked>(sums + 2 * stride + p, scale2, f));
            t.add(offset);
            return t;
        };
        unsigned char* const out = f.out[k];
        size_t p = 0;
        for (; p + 2 * LANES <= pixels; p += 2 * LANES) writer.write(terms(p), terms(p + LANES), out, f.pixel + p);
        if (p < pixels) writer.write(terms(p), out, f.pixel + p);
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
    const Writer<T> writer(f);
    const f32x8 offset = broadcast(f.offset[0]), scale0 = broadcast(f.scale[0]), scale1 = broadcast(f.scale[f.branches - 1]);
    for (size_t p = 0; p < pixels; p += LANES) {
        const Sixteen s = load_plane(types[0], in[0], p);
        Terms t = {to_float(s.low) * scale0, to_float(s.high) * scale0};
        if (f.branches == 2) {
            const Sixteen second = load_plane(types[1], in[1], p);
            t.add(Terms{to_float(second.low) * scale1, to_float(second.high) * scale1});
        }
        t.add(offset);
        writer.write(t, f.out[0], p);
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
