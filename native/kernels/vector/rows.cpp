#include "kernels/vector/rows.h"
#include "threads/stop.h"

#include <algorithm>
#include <cstring>
#include <numeric>

#include "kernels/lines.h"

namespace dbq::vec {
namespace {

constexpr size_t CACHED_COPIES = 256 * 1024;

bool is_pointwise(const ConvShape& s) {
    return s.window.kernel_h == 1 && s.window.kernel_w == 1 && s.window.stride_h == 1 &&
           s.window.stride_w == 1 && s.window.pad_top == 0 && s.window.pad_left == 0 &&
           s.in.height == s.out.height && s.in.width == s.out.width;
}

}  // namespace

Rows::Rows(const ConvShape& spec, const Simd& simd, int spans)
    : simd_(simd), spec_(spec), direct_(is_pointwise(spec)),
      shifted_(spec.window.stride_h == 1 && spec.window.stride_w == 1 && spec.in.width == spec.out.width) {
    for (int kx = 0; kx < spec.window.kernel_w; ++kx) {
        const int shift = kx * spec.window.dilation_w - spec.window.pad_left, stride = spec.window.stride_w;
        const int begin = shift < 0 ? std::min(ceil_div(-shift, stride), spec.out.width) : 0;
        const int inside = spec.in.width - shift;
        const int end = inside > 0 ? std::min(ceil_div(inside, stride), spec.out.width) : 0;
        columns_.push_back({begin, std::max(begin, end), begin * stride + shift});
    }
    for (int ky = 0; ky < spec.window.kernel_h; ++ky) {
        const int phase = ky * spec.window.dilation_h % spec.window.stride_h;
        const auto found = std::find(phases_.begin(), phases_.end(), phase);
        phase_of_.push_back(int(found - phases_.begin()));
        if (found == phases_.end()) phases_.push_back(phase);
    }
    spans_ = cut(spans);
}

// Lines of each copy for this many output lines, and bytes of all copies of one channel.
int Rows::copied_lines(int lines) const {
    return lines + (spec_.window.kernel_h - 1) * spec_.window.dilation_h / spec_.window.stride_h;
}
size_t Rows::copy_bytes(int lines) const {
    return columns_.size() * phases_.size() * size_t(copied_lines(lines)) * size_t(spec_.out.width);
}

std::vector<Span> Rows::cut(int wanted) const {
    const int width = spec_.out.width, pixels = int(spec_.out.pixels());
    // Without copies, any multiple of 64 pixels, which are whole vectors; with copies, whole lines.
    const int step = direct_ ? 64 : std::lcm(width, simd_.lanes);
    const int steps = ceil_div(pixels, step);
    int parts = std::min(steps, wanted);
    if (!direct_) {
        const size_t bytes = size_t(spec_.inputs()) * copy_bytes(step / width);
        parts = std::max(parts, ceil_div(steps, std::max(1, int(CACHED_COPIES / bytes))));
    }
    std::vector<Span> spans;
    for (int i = 0; i < parts; ++i) {
        const Range range = part(steps, parts, i);
        const size_t begin = size_t(range.begin) * size_t(step);
        spans.push_back({begin, std::min(size_t(range.end) * size_t(step), size_t(pixels)) - begin});
    }
    return spans;
}

int Rows::longest_span() const {
    int longest = 0;
    for (const Span& span : spans_) longest = std::max(longest, ceil_div(int(span.pixels), simd_.lanes));
    return longest;
}

size_t Rows::scratch_bytes() const {
    if (direct_) return pointer_bytes();
    const int lines = longest_span() * simd_.lanes / spec_.out.width;
    return pointer_bytes() + aligned(size_t(spec_.inputs()) * copy_bytes(lines) + PLANE_ALIGNMENT);
}

// Lines [first, first + count) of one column of taps, padded.
void Rows::copy_lines(const unsigned char* plane, int first, int count, const Column& column,
                      unsigned char* to) const {
    const size_t width = size_t(spec_.out.width), begin = size_t(column.begin), end = size_t(column.end);
    for (int i = 0; i < count; ++i, to += width) {
        const int y = first + i * spec_.window.stride_h;
        if (y < 0 || y >= spec_.in.height || begin == end) {
            clear_line(to, width);
            continue;
        }
        const unsigned char* from = plane + size_t(y) * size_t(spec_.in.width) + size_t(column.x);
        clear_line(to, begin);
        clear_line(to + end, width - end);
        if (spec_.window.stride_w == 1) copy_line(to + begin, from, end - begin);
        else if (spec_.window.stride_w == 2) simd_.take_even(from, end - begin, to + begin);
        else
            for (size_t x = begin; x < end; ++x, from += spec_.window.stride_w) to[x] = *from;
    }
}

// The same if input and output lines are equally long and there is no stride: copies the plane in one piece,
// moved by a few pixels, then clears the pixels that crossed an edge.
void Rows::shift_lines(const unsigned char* plane, int first, int count, const Column& column,
                       unsigned char* to) const {
    const size_t width = size_t(spec_.out.width), begin = size_t(column.begin), end = size_t(column.end);
    const int top = std::clamp(-first, 0, count), bottom = std::clamp(spec_.in.height - first, top, count);
    const size_t lines = size_t(bottom - top);
    std::memset(to, 0, size_t(top) * width);
    std::memset(to + size_t(bottom) * width, 0, size_t(count - bottom) * width);
    if (lines == 0) return;
    to += size_t(top) * width;
    const unsigned char* from = plane + size_t(first + top) * width + size_t(column.x);
    std::memcpy(to + begin, from, lines * width - (width - end) - begin);
    for (size_t x = 0; x < begin; ++x)
        for (size_t i = 0; i < lines; ++i) to[i * width + x] = 0;
    for (size_t x = end; x < width; ++x)
        for (size_t i = 0; i < lines; ++i) to[i * width + x] = 0;
}

size_t Rows::copy_pixels(Span span) const {
    const size_t width = size_t(spec_.out.width);
    return size_t(copied_lines(int(span.pixels / width))) * width;
}

size_t Rows::longest_copy() const {
    size_t longest = 0;
    for (const Span& span : spans_) longest = std::max(longest, copy_pixels(span));
    return longest;
}

Rows::Tap Rows::tap(int ky, int kx) const {
    const size_t line = size_t(ky * spec_.window.dilation_h / spec_.window.stride_h);
    return {size_t(phase_of_[size_t(ky)]) * columns_.size() + size_t(kx), line * size_t(spec_.out.width)};
}

void Rows::copy_channel(const unsigned char* plane, Span span, unsigned char* to) const {
    const int first = int(span.pixel) / spec_.out.width;
    const size_t pixels = copy_pixels(span);
    const int lines = int(pixels) / spec_.out.width;
    for (const int phase : phases_)
        for (const Column& column : columns_) {
            if (stopped()) return;
            const int top = first * spec_.window.stride_h + phase - spec_.window.pad_top;
            if (shifted_ && column.begin < column.end) shift_lines(plane, top, lines, column, to);
            else copy_lines(plane, top, lines, column, to);
            to += pixels;
        }
}

bool Rows::has_quads() const {
    const bool is_even = spec_.window.stride_h == 2 && spec_.window.stride_w == 2;
    return simd_.copy_quads && (shifted_ || is_even);
}

void Rows::prepare_quads() {
    if (!shifted_) return;
    const size_t pixels = round_up(longest_copy(), 64);
    for (const Column& column : columns_)
        for (size_t pixel = 0; pixel < pixels; ++pixel) {
            const int x = int(pixel % size_t(spec_.out.width));
            if (pixel % 64 == 0) columns_inside_.push_back(0);
            columns_inside_.back() |= uint64_t(x >= column.begin && x < column.end) << (pixel % 64);
        }
}

void Rows::copy_quads(unsigned char* const* planes, int count, Span span, size_t pitch,
                      unsigned char* to) const {
    quads::Copy copy;
    copy.planes = planes;
    copy.count = count;
    copy.is_signed = spec_.in_type == Type::I8;
    copy.in_width = spec_.in.width;
    copy.in_height = spec_.in.height;
    copy.width = spec_.out.width;
    copy.lines = int(copy_pixels(span)) / copy.width;
    const int first = int(span.pixel) / copy.width;
    for (const int phase : phases_)
        for (size_t kx = 0; kx < columns_.size(); ++kx) {
            const Column& column = columns_[kx];
            copy.top = first * spec_.window.stride_h + phase - spec_.window.pad_top;
            copy.begin = column.begin;
            copy.end = column.end;
            copy.shift = column.x - column.begin * spec_.window.stride_w;
            if (shifted_)
                copy.columns = columns_inside_.data() + kx * (columns_inside_.size() / columns_.size());
            copy.out = to;
            simd_.copy_quads(copy);
            to += pitch;
        }
}

const uint8_t* const* Rows::gather(const Planes& in, int group, Span span, unsigned char* scratch) const {
    const int inputs = spec_.inputs();
    unsigned char* const* planes = in.plane + group * inputs;
    const auto rows = reinterpret_cast<const uint8_t**>(scratch);
    if (direct_) {
        for (int c = 0; c < inputs; ++c) rows[c] = planes[c] + span.pixel;
        return rows;
    }
    scratch += pointer_bytes();
    const size_t copy = copy_pixels(span);
    const uint8_t** next = rows;
    for (int c = 0; c < inputs; ++c) {
        unsigned char* const to = scratch + size_t(c) * copies() * copy;
        copy_channel(planes[c], span, to);
        for (int ky = 0; ky < spec_.window.kernel_h; ++ky)
            for (int kx = 0; kx < spec_.window.kernel_w; ++kx) {
                const Tap place = tap(ky, kx);
                *next++ = to + place.copy * copy + place.pixel;
            }
    }
    return rows;
}

}  // namespace dbq::vec
