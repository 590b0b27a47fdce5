// The rules of "What a reader must refuse" in docs/format.md that are about numbers.
#pragma once

#include "file/program.h"

namespace dbq {

constexpr uint32_t MAX_SIDE = 65535, MAX_PIXELS = 1 << 26, MAX_KERNEL_WEIGHTS = 1 << 16;
constexpr int32_t MAX_WIDE = 1 << 30;  // of an i32 code
constexpr uint32_t MAX_KERNEL_SIDE = 255, MAX_TENSORS = 1 << 14;

// The sums of a convolution fit 32 bits, so kernels need not check them. Everything else (pixels * channels,
// bytes of all tensors, multiply-adds) fits 64 bits by far.
static_assert(uint64_t{MAX_KERNEL_WEIGHTS} * 255 * 127 < uint64_t{1} << 31);

// `value` if it lies in low .. high, else an error that calls it `what`.
uint32_t in_range(const char* what, uint32_t value, uint32_t low, uint32_t high);

void check_float(const char* what, float value);
void check_clip(Type type, int32_t low, int32_t high);
void check_window_sum(const Window& window, int64_t largest_code);  // fits 32 bits

// Kernel, stride, padding and dilation; then whether every window of `out` overlaps the image `in`.
void check_window(const Window& window);
void check_overlap(const Window& window, Shape in, Shape out);

// Pixels that all windows of `out` cover.
uint64_t window_work(const Window& window, Shape out);

void check_same_size(const char* what, Shape found, Shape expected);  // height and width
void check_same_channels(const char* what, Shape found, Shape expected);
void check_same_shape(const char* what, Shape found, Shape expected);
void check_same_meaning(const Tensor& found, const Tensor& expected);  // type and scale

}  // namespace dbq
