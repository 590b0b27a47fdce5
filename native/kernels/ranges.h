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

// Threads that always get the same lines of images keep them in their caches: from another processor's cache,
// a cache line takes as long as 100 additions. Small images cannot be cut into equal shares of whole cache
// lines; then threads share the channels. Whether an image is cut into `threads` ranges of pixels:
constexpr int LINE_PIXELS = 64;
inline bool cuts_pixels(size_t pixels, int threads) {
    const int lines = ceil_div(int(pixels), LINE_PIXELS);
    return threads > 1 && 8 * size_t(ceil_div(lines, threads) * LINE_PIXELS * threads) <= 9 * pixels;
}

// A part of the channels and pixels of an image.
struct Tile {
    Range channels, pixels;
};

// An operation that goes pixel by pixel, cut like that.
class PixelOp : public Op {
public:
    PixelOp(const Shape& shape, int threads)
        : channels_(shape.channels), pixels_(int(shape.pixels())),
          cuts_pixels_(cuts_pixels(shape.pixels(), threads)),
          parts_(cuts_pixels_ ? threads : parts_for(channels_, threads)) {}

    int tasks() const final { return parts_; }
    void run(int task, const Planes* in, const Planes* out, unsigned char* scratch) const final {
        if (!cuts_pixels_) return run_on({part(channels_, parts_, task), {0, pixels_}}, in, out, scratch);
        const Range lines = part(ceil_div(pixels_, LINE_PIXELS), parts_, task);
        const Range pixels = {lines.begin * LINE_PIXELS, std::min(lines.end * LINE_PIXELS, pixels_)};
        run_on({{0, channels_}, pixels}, in, out, scratch);
    }
    void run_all(const Planes* in, const Planes* out, unsigned char* scratch) const final {
        run_on({{0, channels_}, {0, pixels_}}, in, out, scratch);
    }

private:
    virtual void run_on(const Tile&, const Planes* in, const Planes* out, unsigned char* scratch) const = 0;

    const int channels_, pixels_;
    const bool cuts_pixels_;
    const int parts_;
};

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
