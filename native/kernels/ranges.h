// Cuts n items into nearly equal consecutive ranges.
#pragma once

#include <algorithm>
#include <cstddef>

namespace dbq {

struct Range {
    int begin = 0, end = 0;
    int size() const { return end - begin; }
};

// Range number i of `parts`; sizes differ by at most one.
inline Range part(int n, int parts, int i) {
    return {int(int64_t(n) * i / parts), int(int64_t(n) * (i + 1) / parts)};
}

// How many parts keep `threads` threads evenly busy: a few per thread, so that a slow one costs little.
inline int parts_for(int n, int threads) { return threads <= 1 ? std::min(n, 1) : std::min(n, 3 * threads); }

inline int ceil_div(int a, int b) { return (a + b - 1) / b; }

inline size_t round_up(size_t n, size_t multiple) { return (n + multiple - 1) / multiple * multiple; }

}  // namespace dbq
