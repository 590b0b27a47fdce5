#include "file/check.h"

#include <cmath>

namespace dbq {

namespace {

constexpr float MAX_FLOAT = 1e20f;

// One direction of check_overlap.
void check_axis(const char* what, int64_t in, int64_t out, int64_t stride, int64_t pad) {
    const int64_t start_of_last = (out - 1) * stride - pad;
    if (start_of_last >= in)
        fail(DBQ_BAD_FILE, "%s: the last window starts at %lld, expected inside the image, below %lld", what,
             static_cast<long long>(start_of_last), static_cast<long long>(in));
}

void check_padding(const char* what, int pad, int kernel, int dilation) {
    const int extent = (kernel - 1) * dilation + 1;
    if (pad >= extent)
        fail(DBQ_BAD_FILE, "%s: %d, expected less than the kernel's extent, %d", what, pad, extent);
}

}  // namespace

uint32_t in_range(const char* what, uint32_t value, uint32_t low, uint32_t high) {
    if (value < low || value > high) fail(DBQ_BAD_FILE, "%s: %u, expected %u to %u", what, value, low, high);
    return value;
}

void check_float(const char* what, float value) {
    if (!(std::fabs(value) <= MAX_FLOAT))  // NaN is not <= anything
        fail(DBQ_BAD_FILE, "%s: %g, expected a number of at most 1e20 in size", what, double(value));
}

void check_clip(Type type, int32_t low, int32_t high) {
    constexpr int32_t LEAST[] = {0, -128, -MAX_WIDE, -MAX_WIDE}, MOST[] = {255, 127, MAX_WIDE, MAX_WIDE};
    const int32_t least = LEAST[int(type)], most = MOST[int(type)];
    if (low < least || high > most || low > high)
        fail(DBQ_BAD_FILE, "clipping to %d .. %d, expected a part of %d .. %d", low, high, least, most);
}

void check_window(const Window& w) {
    in_range("kernel rows", uint32_t(w.kernel_h), 1, MAX_KERNEL_SIDE);
    in_range("kernel columns", uint32_t(w.kernel_w), 1, MAX_KERNEL_SIDE);
    in_range("stride of rows", uint32_t(w.stride_h), 1, MAX_KERNEL_SIDE);
    in_range("stride of columns", uint32_t(w.stride_w), 1, MAX_KERNEL_SIDE);
    in_range("dilation of rows", uint32_t(w.dilation_h), 1, MAX_KERNEL_SIDE);
    in_range("dilation of columns", uint32_t(w.dilation_w), 1, MAX_KERNEL_SIDE);
    check_padding("padding at the top", w.pad_top, w.kernel_h, w.dilation_h);
    check_padding("padding at the left", w.pad_left, w.kernel_w, w.dilation_w);
}

void check_window_sum(const Window& w, int64_t largest_code) {
    const int64_t sum = int64_t(w.kernel_h) * w.kernel_w * largest_code;
    if (sum > INT32_MAX)
        fail(DBQ_BAD_FILE, "a window of %d x %d codes up to %lld: their sum does not fit 32 bits", w.kernel_h,
             w.kernel_w, static_cast<long long>(largest_code));
}

uint64_t window_work(const Window& w, Shape out) {
    return uint64_t(w.kernel_h) * uint64_t(w.kernel_w) * uint64_t(out.channels) * out.pixels();
}

void check_overlap(const Window& w, Shape in, Shape out) {
    check_axis("rows", in.height, out.height, w.stride_h, w.pad_top);
    check_axis("columns", in.width, out.width, w.stride_w, w.pad_left);
}

void check_same_size(const char* what, Shape found, Shape expected) {
    if (found.height != expected.height || found.width != expected.width)
        fail(DBQ_BAD_FILE, "%s of %d x %d, expected %d x %d", what, found.height, found.width,
             expected.height, expected.width);
}

void check_same_channels(const char* what, Shape found, Shape expected) {
    if (found.channels != expected.channels)
        fail(DBQ_BAD_FILE, "%s of %d channels, expected %d", what, found.channels, expected.channels);
}

void check_same_shape(const char* what, Shape found, Shape expected) {
    check_same_channels(what, found, expected);
    check_same_size(what, found, expected);
}

void check_same_meaning(const Tensor& found, const Tensor& expected) {
    if (found.type != expected.type || found.scale != expected.scale)
        fail(DBQ_BAD_FILE, "type and scale of the output differ from those of the input");
}

}  // namespace dbq
