// A convolution as a matrix product: row d = (c, ky, kx) holds, for each output pixel, the code under tap
// (ky, kx) of input channel c. One function turns every geometry into such rows.
//
// A 1x1 convolution with stride 1 has its input planes as rows. Otherwise planes are copied kernel_w times,
// shifted, strided and padded so that their pitch is the output width; then the taps of a column kx are the
// same copy, read from another line.
#pragma once

#include "kernels/isa/simd.h"
#include "kernels/ranges.h"
#include "ops/specs.h"

namespace dbq::vec {

// Consecutive output pixels, from a multiple of the vector length on: vectors of two spans never overlap.
struct Span {
    size_t pixel = 0, pixels = 0;
};

class Rows {
public:
    // `spans`: about how many the threads need; there may be more, or fewer in small images.
    Rows(const ConvShape&, const Simd&, int spans);

    int count() const { return spec_.taps(); }
    // The output, in spans, small enough for their copies to stay in cache.
    const std::vector<Span>& spans() const { return spans_; }
    int longest_span() const;  // in vectors
    size_t scratch_bytes() const;
    bool is_direct() const { return direct_; }

    // The copies of one channel, one behind the other: for each phase and column of taps. A tap is found in
    // one of them, some pixels further on.
    struct Tap {
        size_t copy, pixel;
    };
    size_t copies() const { return columns_.size() * phases_.size(); }
    size_t copy_pixels(Span span) const;
    size_t longest_copy() const;  // in pixels
    Tap tap(int ky, int kx) const;
    void copy_channel(const unsigned char* plane, Span span, unsigned char* to) const;
    // The same for up to four channels, interleaved, by the table's copy_quads: copies are `pitch` bytes
    // apart.
    bool has_quads() const;
    void prepare_quads();  // before the first of them
    void copy_quads(unsigned char* const* planes, int count, Span span, size_t pitch,
                    unsigned char* to) const;

    // rows[d][p] is row d at pixel span.pixel + p; readable up to the end of the last vector.
    const uint8_t* const* gather(const Planes& in, int group, Span span, unsigned char* scratch) const;

private:
    struct Column {
        int begin, end, x;  // output columns [begin, end) are inside the image; the first reads column x
    };
    size_t pointer_bytes() const { return aligned(size_t(count()) * sizeof(void*)); }
    int copied_lines(int lines) const;
    size_t copy_bytes(int lines) const;
    std::vector<Span> cut(int wanted) const;
    void copy_lines(const unsigned char* plane, int first, int count, const Column&, unsigned char* to) const;
    void shift_lines(const unsigned char* plane, int first, int count, const Column&,
                     unsigned char* to) const;

    const Simd& simd_;
    const ConvShape spec_;
    const bool direct_, shifted_;
    std::vector<Span> spans_;
    std::vector<Column> columns_;           // for each kx
    std::vector<uint64_t> columns_inside_;  // bits, for each kx and pixel of the longest copy
    std::vector<int> phases_;               // remainders of input lines by the stride that taps use
    std::vector<int> phase_of_;             // for each ky: index into phases_
};

}  // namespace dbq::vec
