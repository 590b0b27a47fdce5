// Reads little-endian numbers from untrusted bytes. Every read is checked against what is left before
// anything is allocated for it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "file/error.h"

namespace dbq {

struct Bytes {
    const uint8_t* data = nullptr;
    size_t size = 0;
};

uint32_t crc32(Bytes bytes);  // as in zlib and PNG

class Reader {
public:
    explicit Reader(Bytes bytes) : next_(bytes.data), left_(bytes.size) {}

    size_t left() const { return left_; }

    Bytes bytes(uint64_t count) {
        if (count > left_)
            fail(DBQ_BAD_FILE, "the file ends too early: %zu bytes left, %llu expected", left_,
                 static_cast<unsigned long long>(count));
        const Bytes taken{next_, size_t(count)};
        next_ += taken.size;
        left_ -= taken.size;
        return taken;
    }

    uint8_t u8() { return *bytes(1).data; }
    uint16_t u16() { return uint16_t(number(2)); }
    uint32_t u32() { return uint32_t(number(4)); }
    int32_t i32() { return int32_t(u32()); }
    uint64_t u64() { return number(8); }
    float f32() {
        const uint32_t bits = u32();
        float value;
        std::memcpy(&value, &bits, sizeof value);
        return value;
    }
    std::vector<float> floats(uint32_t count);
    std::string text(uint32_t size);  // UTF-8 without zero bytes, or an error

private:
    uint64_t number(int size) {
        const uint8_t* from = bytes(uint64_t(size)).data;
        uint64_t value = 0;
        for (int i = size; i-- > 0;) value = value << 8 | from[i];
        return value;
    }

    const uint8_t* next_;
    size_t left_;
};

}  // namespace dbq
