// The requantization formula, 16 pixels at a time.

struct Sixteen {
    i32x8 low, high;
};

INLINE Sixteen load_sums(const int16_t* p, const Finish& f) {
    Sixteen s = {load_widened(p), load_widened(p + 8)};
    for (int c = 1; c < f.chunks; ++c) {
        p += f.chunk_stride;
        s.low += load_widened(p);
        s.high += load_widened(p + 8);
    }
    return s;
}
INLINE Sixteen load_sums(const int32_t* p, const Finish&) { return {load<i32x8>(p), load<i32x8>(p + 8)}; }

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
        if (!bounded) {
            a = smaller(larger(a, low), high);
            b = smaller(larger(b, low), high);
        }
        const i16x16 codes =
            smaller(larger(narrow(round_half_even(a), round_half_even(b)), lowest), highest);
        if (T == Type::I16) store(plane + 2 * pixel, codes);
        if (T == Type::U8) store_codes<false>(plane + pixel, codes);
        if (T == Type::I8) store_codes<true>(plane + pixel, codes);
    }
};

template <Type T, int Branches, class Sum>
void finish_as(const Finish& f) {
    const Writer writer(f);
    const bool bounded = f.bounded;
    const Sum* sums = static_cast<const Sum*>(f.sums);
    for (int k = 0; k < f.channels; ++k, sums += Branches * f.stride) {
        f32x8 scale[Branches];
        for (int j = 0; j < Branches; ++j) scale[j] = broadcast(f.scale[k * Branches + j]);
        const f32x8 offset = broadcast(f.offset[k]);
        for (int v = 0; v < f.vectors; ++v) {
            f32x8 a, b;
            for (int j = 0; j < Branches; ++j) {
                const Sixteen s = load_sums(sums + size_t(j) * f.stride + size_t(v) * LANES, f);
                const f32x8 low = to_float(s.low) * scale[j], high = to_float(s.high) * scale[j];
                a = j ? a + low : low;
                b = j ? b + high : high;
            }
            writer.write<T>(a + offset, b + offset, bounded, f.out[k], f.pixel + size_t(v) * LANES);
        }
    }
}

template <int Branches, class Sum>
void finish_branches(const Finish& f) {
    switch (f.type) {
        case Type::U8: return finish_as<Type::U8, Branches, Sum>(f);
        case Type::I8: return finish_as<Type::I8, Branches, Sum>(f);
        case Type::I16: return finish_as<Type::I16, Branches, Sum>(f);
        case Type::F32: return finish_as<Type::F32, Branches, Sum>(f);
    }
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
    const i16x16 codes = type == Type::U8   ? load_codes<false>(plane + pixel)
                         : type == Type::I8 ? load_codes<true>(plane + pixel)
                                            : load<i16x16>(plane + 2 * pixel);
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
        case Type::I16: return combine_as<Type::I16>(in, types, pixels, f);
        case Type::F32: return combine_as<Type::F32>(in, types, pixels, f);
    }
}
