// Sums and maxima of rows, in loops that compilers vectorise.

template <class T>
int32_t sum_of(const T* plane, size_t pixels) {
    int32_t sum = 0;
    for (size_t p = 0; p < pixels; ++p) sum += plane[p];
    return sum;
}

int32_t sum_plane(Type type, const unsigned char* plane, size_t pixels) {
    if (type == Type::U8) return sum_of(plane, pixels);
    if (type == Type::I8) return sum_of(reinterpret_cast<const int8_t*>(plane), pixels);
    return sum_of(reinterpret_cast<const int32_t*>(plane), pixels);
}

template <class T>
void add_row_of(const T* row, int n, int32_t* __restrict__ sums) {
    for (int x = 0; x < n; ++x) sums[x] += row[x];
}

void add_row(Type type, const unsigned char* row, int n, int32_t* sums) {
    if (type == Type::U8) return add_row_of(row, n, sums);
    if (type == Type::I8) return add_row_of(reinterpret_cast<const int8_t*>(row), n, sums);
    return add_row_of(reinterpret_cast<const int32_t*>(row), n, sums);
}

template <class T>
void max_rows_of(unsigned char* a_bytes, const unsigned char* b_bytes, int n) {
    T* __restrict__ a = reinterpret_cast<T*>(a_bytes);
    const T* __restrict__ b = reinterpret_cast<const T*>(b_bytes);
    for (int x = 0; x < n; ++x) a[x] = a[x] < b[x] ? b[x] : a[x];
}

void max_rows(Type type, unsigned char* a, const unsigned char* b, int n) {
    if (type == Type::U8) return max_rows_of<uint8_t>(a, b, n);
    if (type == Type::I8) return max_rows_of<int8_t>(a, b, n);
    if (type == Type::I32) return max_rows_of<int32_t>(a, b, n);
    return max_rows_of<float>(a, b, n);
}
