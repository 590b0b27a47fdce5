#include "file/reader.h"

#include <array>

namespace dbq {

namespace {

using Tables = std::array<std::array<uint32_t, 256>, 8>;

// Eight tables, one for each byte of a step: five times as fast as one table, and checksums dominate loading.
constexpr Tables make_tables() {
    Tables table{};
    for (uint32_t byte = 0; byte < 256; ++byte) {
        uint32_t value = byte;
        for (int bit = 0; bit < 8; ++bit) value = value >> 1 ^ (value & 1 ? 0xEDB88320u : 0);
        table[0][byte] = value;
    }
    for (size_t i = 1; i < 8; ++i)
        for (size_t byte = 0; byte < 256; ++byte) {
            const uint32_t before = table[i - 1][byte];
            table[i][byte] = before >> 8 ^ table[0][before & 0xFF];
        }
    return table;
}

constexpr Tables TABLES = make_tables();

// The length in bytes of the UTF-8 character at the start of `text`; 0 if there is none.
size_t character(const uint8_t* text, size_t left) {
    const uint8_t first = text[0];
    if (first < 0x80) return first != 0;
    const size_t length = first >= 0xF0 ? 4 : first >= 0xE0 ? 3 : 2;
    if (first < 0xC2 || first > 0xF4 || length > left) return 0;
    for (size_t i = 1; i < length; ++i)
        if ((text[i] & 0xC0) != 0x80) return 0;
    const uint8_t second = text[1];
    const bool overlong = (first == 0xE0 && second < 0xA0) || (first == 0xF0 && second < 0x90);
    const bool surrogate = first == 0xED && second > 0x9F;
    const bool beyond = first == 0xF4 && second > 0x8F;
    return overlong || surrogate || beyond ? 0 : length;
}

}  // namespace

uint32_t crc32(Bytes bytes) {
    const uint8_t* next = bytes.data;
    size_t left = bytes.size;
    uint32_t value = 0xFFFFFFFF;
    for (; left >= 8; next += 8, left -= 8) {
        uint32_t low = value;
        for (int i = 0; i < 4; ++i) low ^= uint32_t(next[i]) << 8 * i;
        value = TABLES[7][low & 0xFF] ^ TABLES[6][low >> 8 & 0xFF] ^ TABLES[5][low >> 16 & 0xFF] ^
                TABLES[4][low >> 24] ^ TABLES[3][next[4]] ^ TABLES[2][next[5]] ^ TABLES[1][next[6]] ^
                TABLES[0][next[7]];
    }
    for (; left > 0; ++next, --left) value = value >> 8 ^ TABLES[0][(value ^ *next) & 0xFF];
    return ~value;
}

std::vector<float> Reader::floats(uint32_t count) {
    Reader part(bytes(uint64_t{count} * 4));
    std::vector<float> values(count);
    for (float& value : values) value = part.f32();
    return values;
}

std::string Reader::text(uint32_t size) {
    const Bytes found = bytes(size);
    for (size_t at = 0; at < found.size;) {
        const size_t length = character(found.data + at, found.size - at);
        if (length == 0) fail(DBQ_BAD_FILE, "byte %zu of a text is 0 or not UTF-8", at);
        at += length;
    }
    return {reinterpret_cast<const char*>(found.data), found.size};
}

}  // namespace dbq
