// Cutting work into nearly equal consecutive ranges.
#pragma once

#include <algorithm>

#include "kernels/op.h"

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
inline int pieces_for(int threads) { return threads <= 1 ? 1 : 3 * threads; }
inline int parts_for(int n, int threads) { return std::min(n, pieces_for(threads)); }

inline int ceil_div(int a, int b) { return (a + b - 1) / b; }

// An operation whose tasks are ranges of n channels, or of whatever else it counts.
class RangeOp : public Op {
public:
    RangeOp(int n, int threads) : n_(n), parts_(parts_for(n, threads)) {}

    int tasks() const final { return parts_; }
    void run(int task, const Planes* in, const Planes* out, unsigned char* scratch) const final {
        run_on(part(n_, parts_, task), in, out, scratch);
    }

private:
    virtual void run_on(Range, const Planes* in, const Planes* out, unsigned char* scratch) const = 0;

    const int n_, parts_;
};

}  // namespace dbq
