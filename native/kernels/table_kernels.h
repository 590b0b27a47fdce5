// The table of sums, and adding up its rows.

template <bool Signed, int Rows>
void build_table_as(const uint8_t* const* rows, int count, size_t pixel, int vectors, int pitch, int16_t* table) {
    static const uint8_t zeros[LANES] = {};
    for (int first = 0; first < count; first += Rows, table += sums_of_group(Rows) * pitch * LANES)
        for (int v = 0; v < vectors; ++v) {
            const auto row = [&](int i) {
                return load_codes<Signed>(first + i < count ? rows[first + i] + pixel + v * LANES : zeros);
            };
            const i16x16 a = row(0), b = row(1), c = row(2), minus = b - a, plus = b + a;
            const i16x16 sums[13] = {a,     minus, b,     plus,      c - plus, c - b,   c - minus,
                                     c - a, c,     c + a, c + minus, c + b,    c + plus};
            int16_t* const to = table + v * LANES;
            const auto write = [&](int n, i16x16 sum) { store(to + (n - 1) * pitch * LANES, sum); };
            for (int n = 1; n <= 13; ++n) write(n, sums[n - 1]);
            if (Rows < 4) continue;
            const i16x16 d = row(3);
            write(27, d);
            for (int n = 1; n <= 13; ++n) {
                write(27 - n, d - sums[n - 1]);
                write(27 + n, d + sums[n - 1]);
            }
        }
}

template <bool Signed>
void build_table_signed(const uint8_t* const* rows, int count, int group_rows, size_t pixel, int vectors, int pitch,
                        int16_t* table) {
    (group_rows == 4 ? build_table_as<Signed, 4> : build_table_as<Signed, 3>)(rows, count, pixel, vectors, pitch, table);
}

void build_table(const uint8_t* const* rows, int count, int group_rows, bool is_signed, size_t pixel, int vectors,
                 int pitch, int16_t* table) {
    (is_signed ? build_table_signed<true> : build_table_signed<false>)(rows, count, group_rows, pixel, vectors, pitch,
                                                                       table);
}

// The sums of a tile, in registers. Not an array: compilers put those on the stack.
template <int V>
struct Tile {
    i16x16 first;
    Tile<V - 1> rest;

    INLINE void clear() {
        first = i16x16{};
        rest.clear();
    }
    INLINE void write(int16_t* p) const {
        store(p, first);
        rest.write(p + LANES);
    }
    template <bool Add, int Offset = 0>
    INLINE void apply(const unsigned char* table, uint64_t position) {
        add_at<Add, Offset>(first, table, position);
        rest.template apply<Add, Offset + int(sizeof first)>(table, position);
    }
};

template <>
struct Tile<0> {
    INLINE void clear() {}
    INLINE void write(int16_t*) const {}
    template <bool Add, int Offset>
    INLINE void apply(const unsigned char*, uint64_t) {}
};

template <bool Add, int V>
INLINE void apply_four(Tile<V>& sums, const unsigned char* table, const uint16_t* positions) {
    const uint64_t four = load<uint64_t>(positions);
    sums.template apply<Add>(table, uint16_t(four));
    sums.template apply<Add>(table, uint16_t(four >> 16));
    sums.template apply<Add>(table, uint16_t(four >> 32));
    sums.template apply<Add>(table, four >> 48);
}

// Adds or subtracts `count` rows, for two lists at once: half the branches, twice the independent work.
// Positions are read four at a time: load ports are what limits this loop, and the rows need them. Reads up
// to three positions past the last one.
template <bool Add, int V>
INLINE const uint16_t* apply_rows(Tile<V>& a, Tile<V>& b, const unsigned char* table, const uint16_t* positions,
                                  int count) {
    for (; count >= 4; count -= 4, positions += 8) {
        apply_four<Add>(a, table, positions);
        apply_four<Add>(b, table, positions + 4);
    }
    if (count == 0) return positions;
    uint64_t rest_a = load<uint64_t>(positions), rest_b = load<uint64_t>(positions + count);
    positions += 2 * count;
    do {
        a.template apply<Add>(table, uint16_t(rest_a));
        b.template apply<Add>(table, uint16_t(rest_b));
        rest_a >>= 16;
        rest_b >>= 16;
    } while (--count);
    return positions;
}

template <int V>
void add_lists_of(const Lists& lists, const unsigned char* table, int pitch, bool fresh, int16_t* sums) {
    const uint16_t* stream = lists.stream;
    for (const Run *run = lists.runs, *end = run + lists.count; run < end; ++run) {
        const int adds = run->adds, subs = run->subs;
        for (uint32_t i = 0; i < run->pairs; ++i) {
            int16_t* const to_a = sums + size_t(stream[0]) * size_t(pitch * LANES);
            int16_t* const to_b = sums + size_t(stream[1]) * size_t(pitch * LANES);
            Tile<V> a, b;
            a.clear();
            b.clear();
            stream = apply_rows<true>(a, b, table, stream + 2, adds);
            stream = apply_rows<false>(a, b, table, stream, subs);
            // Earlier sums come from the L2 cache: added last, so that nothing waits for them.
            if (!fresh) {
                a.template apply<true>(reinterpret_cast<const unsigned char*>(to_a), 0);
                b.template apply<true>(reinterpret_cast<const unsigned char*>(to_b), 0);
            }
            a.write(to_a);
            b.write(to_b);
        }
    }
}

void add_lists(const Lists& lists, const int16_t* table, int vectors, int pitch, bool fresh, int16_t* sums) {
    const auto rows = reinterpret_cast<const unsigned char*>(table);
    switch (vectors) {
        case 1: return add_lists_of<1>(lists, rows, pitch, fresh, sums);
        case 2: return add_lists_of<2>(lists, rows, pitch, fresh, sums);
        case 3: return add_lists_of<3>(lists, rows, pitch, fresh, sums);
        case 4: return add_lists_of<4>(lists, rows, pitch, fresh, sums);
        case 5: return add_lists_of<5>(lists, rows, pitch, fresh, sums);
        default: return add_lists_of<6>(lists, rows, pitch, fresh, sums);
    }
}
