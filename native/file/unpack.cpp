#include "file/unpack.h"

#include <array>

namespace dbq {

namespace {

constexpr size_t TRITS = 5;
constexpr int BYTES = 243;  // 3^5

using Trits = std::array<std::array<int8_t, TRITS>, BYTES>;

constexpr Trits make_trits() {
    Trits table{};
    for (int byte = 0; byte < BYTES; ++byte)
        for (int i = 0, rest = byte; i < int(TRITS); ++i, rest /= 3)
            table[size_t(byte)][size_t(i)] = int8_t(rest % 3 - 1);
    return table;
}

constexpr Trits CODES = make_trits();

}  // namespace

std::vector<int8_t> unpack_ternary(Bytes packed, size_t count) {
    std::vector<int8_t> codes(packed.size * TRITS);
    for (size_t i = 0; i < packed.size; ++i) {
        const uint8_t byte = packed.data[i];
        if (byte >= BYTES) fail(DBQ_BAD_FILE, "byte %zu of the weights is %d, expected below 243", i, byte);
        for (size_t trit = 0; trit < TRITS; ++trit) codes[i * TRITS + trit] = CODES[byte][trit];
    }
    for (size_t i = count; i < codes.size(); ++i)
        if (codes[i] != -1) fail(DBQ_BAD_FILE, "the last byte of the weights is not filled up with trits 0");
    codes.resize(count);
    return codes;
}

std::vector<int8_t> unpack_fixed(Bytes packed, size_t count, int bits) {
    std::vector<int8_t> codes(count);
    const int sign = 1 << (bits - 1);
    uint32_t window = 0;  // bits read and not used yet, the least significant first
    int held = 0;
    size_t next = 0;
    for (int8_t& code : codes) {
        if (held < bits) {
            window |= uint32_t(packed.data[next++]) << held;
            held += 8;
        }
        const int field = int(window & ((1u << bits) - 1));
        window >>= bits;
        held -= bits;
        if (field == sign) fail(DBQ_BAD_FILE, "a weight is %d, expected at least %d", -sign, 1 - sign);
        code = int8_t((field ^ sign) - sign);
    }
    if (window != 0) fail(DBQ_BAD_FILE, "the last byte of the weights is not filled up with zeros");
    return codes;
}

}  // namespace dbq
