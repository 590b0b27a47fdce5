// Copies short lines of images without calls, touching no byte beyond them.
#pragma once

#include <cstddef>
#include <cstring>

namespace dbq {

inline void copy_line(unsigned char* to, const unsigned char* from, size_t n) {
    if (n >= 16) {
        for (size_t i = 0; i + 16 <= n; i += 16) std::memcpy(to + i, from + i, 16);
        std::memcpy(to + n - 16, from + n - 16, 16);
    } else if (n >= 8) {
        std::memcpy(to, from, 8);
        std::memcpy(to + n - 8, from + n - 8, 8);
    } else if (n >= 4) {
        std::memcpy(to, from, 4);
        std::memcpy(to + n - 4, from + n - 4, 4);
    } else {
        for (size_t i = 0; i < n; ++i) to[i] = from[i];
    }
}

inline void clear_line(unsigned char* to, size_t n) {
    if (n >= 16) {
        std::memset(to, 0, n);
    } else if (n >= 8) {
        std::memset(to, 0, 8);
        std::memset(to + n - 8, 0, 8);
    } else {
        for (size_t i = 0; i < n; ++i) to[i] = 0;
    }
}

}  // namespace dbq
