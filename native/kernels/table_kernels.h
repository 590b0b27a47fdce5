// The table of sums, and adding up its rows.

template <bool Signed>
void build_table_as(const uint8_t* const* rows, int count, size_t pixel, int vectors, int pitch, int16_t* table) {
    static const uint8_t zeros[LANES] = {};
    for (int first = 0; first < count; first += GROUP_ROWS, table += GROUP_SUMS * pitch * LANES)
        for (int v = 0; v < vectors; ++v) {
            const auto row = [&](int i) {
                return load_codes<Signed>(first + i < count ? rows[first + i] + pixel + v * LANES : zeros);
            };
            const i16x16 a = row(0), b = row(1), c = row(2), minus = b - a, plus = b + a;
            const i16x16 sums[GROUP_SUMS] = {a,     minus, b,     plus,      c - plus, c - b,   c - minus,
                                             c - a, c,     c + a, c + minus, c + b,    c + plus};
            for (int n = 0; n < GROUP_SUMS; ++n) store(table + (n * pitch + v) * LANES, sums[n]);
        }
}

void build_table(const uint8_t* const* rows, int count, bool is_signed, size_t pixel, int vectors, int pitch,
                 int16_t* table) {
    (is_signed ? build_table_as<true> : build_table_as<false>)(rows, count, pixel, vectors, pitch, table);
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
    INLINE void read(const int16_t* p) {
        first = load<i16x16>(p);
        rest.read(p + LANES);
    }
    INLINE void write(int16_t* p) const {
        store(p, first);
        rest.write(p + LANES);
    }
    template <bool Add>
    INLINE void apply(const unsigned char* row) {
        const i16x16 v = load<i16x16>(row);
        first = Add ? first + v : first - v;
        keep(first);
        rest.template apply<Add>(row + sizeof v);
    }
};

template <>
struct Tile<0> {
    INLINE void clear() {}
    INLINE void read(const int16_t*) {}
    INLINE void write(int16_t*) const {}
    template <bool Add>
    INLINE void apply(const unsigned char*) {}
};

template <bool Add, int V>
INLINE void apply_four(Tile<V>& sums, const unsigned char* table, const uint16_t* positions) {
    const uint64_t four = load<uint64_t>(positions);
    sums.template apply<Add>(table + (four & 0xffff));
    sums.template apply<Add>(table + (four >> 16 & 0xffff));
    sums.template apply<Add>(table + (four >> 32 & 0xffff));
    sums.template apply<Add>(table + (four >> 48));
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
        a.template apply<Add>(table + (rest_a & 0xffff));
        b.template apply<Add>(table + (rest_b & 0xffff));
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
            if (fresh) {
                a.clear();
                b.clear();
            } else {
                a.read(to_a);
                b.read(to_b);
            }
            stream = apply_rows<true>(a, b, table, stream + 2, adds);
            stream = apply_rows<false>(a, b, table, stream, subs);
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
