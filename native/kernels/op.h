// What an operation of the engine is: integers in, exact integer sums or one float, one formula out.
//
// Tensors are planes: one contiguous H*W array of codes per channel, so that neighbouring pixels are
// neighbouring lanes. A plane is reached by pointer, which makes concatenating, splitting and shuffling
// channels free: they only permute pointers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace dbq {

// I32 holds values that are added up later, in steps so fine that only rounding to float limits them.
enum class Type : uint8_t { U8, I8, I32, F32 };

constexpr size_t size_of(Type type) { return type == Type::F32 || type == Type::I32 ? 4 : 1; }

// The slack rule. Planes start at multiples of 64 bytes and own all bytes up to the next multiple of 64
// that is also the end of a whole vector of `lanes` pixels. Kernels may read and write this slack; its
// contents mean nothing. Input planes are never written.
constexpr size_t PLANE_ALIGNMENT = 64;

constexpr size_t round_up(size_t n, size_t multiple) { return (n + multiple - 1) / multiple * multiple; }
constexpr size_t aligned(size_t bytes) { return round_up(bytes, PLANE_ALIGNMENT); }
constexpr size_t plane_bytes(Type type, size_t pixels, size_t lanes) {
    return aligned(round_up(pixels, lanes) * size_of(type));
}

struct Planes {
    unsigned char* const* plane = nullptr;  // [channels]
};

struct Shape {
    int channels = 0, height = 0, width = 0;
    size_t pixels() const { return size_t(height) * size_t(width); }
    size_t pixel(int y, int x) const { return size_t(y) * size_t(width) + size_t(x); }
};

// Of a convolution or pool. Only convolutions are dilated.
struct Window {
    int kernel_h = 1, kernel_w = 1, stride_h = 1, stride_w = 1, pad_top = 0, pad_left = 0;
    int dilation_h = 1, dilation_w = 1;
};

// The requantization formula. From the exact integer sums s_0 .. s_{J-1} of an output element in channel k:
//
//     t = float(s_0) * scale[k*J + 0]
//     t = t + float(s_j) * scale[k*J + j]      for j = 1 .. J-1
//     t = t + offset[k]
//     t = low if t < low, high if t > high     not for F32 with low = high = 0
//     F32: the output is t.   Otherwise: round_half_even(t)
//
// Some operations compute one float v by steps of their own, in place of float(s_0). Every operation is
// rounded to float32 by itself: no fused multiply-add, no other order. Scales, and v, are finite and small
// enough that t is never infinite (the loader checks that).
struct Output {
    Type type = Type::U8;
    float low = 0, high = 0;
    bool clamps() const { return type != Type::F32 || low != 0 || high != 0; }
    std::vector<float> scale, offset;
};

// An operation ready to run: weights repacked, tiles chosen. Immutable, so threads share it. Its work is
// cut into tasks that may run in any order and on any thread; each writes its own part of the outputs.
class Op {
public:
    virtual ~Op() = default;
    virtual int tasks() const = 0;
    virtual size_t scratch_bytes() const { return 0; }  // for each thread; aligned to 64
    // in: one Planes for each input; out: one for each output.
    virtual void run(int task, const Planes* in, const Planes* out, unsigned char* scratch) const = 0;
    // All tasks, on one thread: what they would do twice can be done once.
    virtual void run_all(const Planes* in, const Planes* out, unsigned char* scratch) const {
        for (int task = 0; task < tasks(); ++task) run(task, in, out, scratch);
    }
    virtual size_t weight_bytes() const { return 0; }
};

}  // namespace dbq
