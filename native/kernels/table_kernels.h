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

template <int V>
INLINE void add_row(i16x16 (&sum)[V], const unsigned char* row) {
    for (int v = 0; v < V; ++v) sum[v] += load<i16x16>(row + 32 * v);
}
template <int V>
INLINE void sub_row(i16x16 (&sum)[V], const unsigned char* row) {
    for (int v = 0; v < V; ++v) sum[v] -= load<i16x16>(row + 32 * v);
}

// Positions are read four at a time: the load ports are what limits this loop, and table rows need them.
// May read three positions past the last one.
#define DBQ_FOR_POSITIONS(count, apply)                      \
    {                                                        \
        int left = count;                                    \
        for (; left >= 4; left -= 4, stream += 4) {          \
            const uint64_t four = load<uint64_t>(stream);    \
            apply<V>(sum, table + (four & 0xffff));          \
            apply<V>(sum, table + (four >> 16 & 0xffff));    \
            apply<V>(sum, table + (four >> 32 & 0xffff));    \
            apply<V>(sum, table + (four >> 48));             \
        }                                                    \
        uint64_t rest = load<uint64_t>(stream);              \
        stream += left;                                      \
        for (; left > 0; --left, rest >>= 16) apply<V>(sum, table + (rest & 0xffff)); \
    }

template <int V>
void add_lists_of(const Lists& lists, const unsigned char* table, int pitch, bool fresh, int16_t* sums) {
    const uint16_t* stream = lists.stream;
    for (const Run *run = lists.runs, *end = run + lists.count; run < end; ++run) {
        const int adds = run->adds, subs = run->subs;
        for (uint32_t i = 0; i < run->lists; ++i) {
            int16_t* const to = sums + size_t(*stream++) * size_t(pitch * LANES);
            i16x16 sum[V];
            for (int v = 0; v < V; ++v) sum[v] = fresh ? i16x16{} : load<i16x16>(to + v * LANES);
            DBQ_FOR_POSITIONS(adds, add_row)
            DBQ_FOR_POSITIONS(subs, sub_row)
            for (int v = 0; v < V; ++v) store(to + v * LANES, sum[v]);
        }
    }
}

#undef DBQ_FOR_POSITIONS

void add_lists(const Lists& lists, const int16_t* table, int vectors, int pitch, bool fresh, int16_t* sums) {
    const auto rows = reinterpret_cast<const unsigned char*>(table);
    switch (vectors) {
        case 1: return add_lists_of<1>(lists, rows, pitch, fresh, sums);
        case 2: return add_lists_of<2>(lists, rows, pitch, fresh, sums);
        case 3: return add_lists_of<3>(lists, rows, pitch, fresh, sums);
        case 4: return add_lists_of<4>(lists, rows, pitch, fresh, sums);
        case 5: return add_lists_of<5>(lists, rows, pitch, fresh, sums);
        case 6: return add_lists_of<6>(lists, rows, pitch, fresh, sums);
        case 7: return add_lists_of<7>(lists, rows, pitch, fresh, sums);
        default: return add_lists_of<8>(lists, rows, pitch, fresh, sums);
    }
}
