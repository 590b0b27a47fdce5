// What every operation of the engine is: integers in, exact integer sums, one formula out.
//
// Tensors are planes: one contiguous H*W array of codes per channel, so that neighbouring pixels are
// neighbouring lanes. A plane is reached by pointer, which makes concatenation, splitting and shuffling
// of channels free: they only permute pointers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace dbq {

// I32 is for values that are added up later: fine enough that rounding to float is what limits them.
enum class Type : uint8_t { U8, I8, I32, F32 };

constexpr size_t size_of(Type type) { return type == Type::F32 || type == Type::I32 ? 4 : 1; }

// Planes start at multiples of this many bytes and own all bytes up to the next multiple. Kernels may
// read and write that slack; its contents mean nothing. Input planes are never written.
constexpr size_t PLANE_ALIGNMENT = 64;

constexpr size_t plane_bytes(Type type, size_t pixels) {
    return (pixels * size_of(type) + PLANE_ALIGNMENT - 1) / PLANE_ALIGNMENT * PLANE_ALIGNMENT;
}

struct Planes {
    unsigned char* const* plane = nullptr;  // [channels]
};

struct Shape {
    int channels = 0, height = 0, width = 0;
    size_t pixels() const { return size_t(height) * size_t(width); }
};

// The requantization formula, the only place where floats appear. From the exact integer sums
// s_0 .. s_{J-1} of an output element in channel k:
//
//     t = float(s_0) * scale[k*J + 0]
//     t = t + float(s_j) * scale[k*J + j]      for j = 1 .. J-1
//     t = t + offset[k]
//     F32: the output is t.   Otherwise: round_half_even(min(max(t, low), high))
//
// Every operation is rounded to float32 by itself: no fused multiply-add, no other order. Scales are
// finite and small enough that t is never infinite (the loader checks that).
struct Output {
    Type type = Type::U8;
    float low = 0, high = 0;
    std::vector<float> scale, offset;
};

enum class Weights : uint8_t { Ternary, Fixed };

// out[k] = sum over c, y, x of codes[j][k][c][y][x] * in[...], one sum for each branch j; outside of the
// image the input is 0. Linear layers are 1x1 convolutions of 1x1 images.
struct ConvSpec {
    Shape in, out;
    Type in_type = Type::U8;  // U8 or I8
    int kernel_h = 1, kernel_w = 1, stride_h = 1, stride_w = 1, pad_top = 0, pad_left = 0;
    int dilation_h = 1, dilation_w = 1, groups = 1;
    Weights weights = Weights::Ternary;
    int branches = 1;             // 1..3; Fixed has one
    std::vector<int8_t> codes;    // [branches][out.channels][in.channels/groups][kernel_h][kernel_w]
    std::vector<Output> outputs;  // one or more: a tensor may be wanted in several precisions
};

// An operation ready to run: weights repacked, tiles chosen. Immutable, so threads share it. Its work is
// cut into tasks that may run in any order and on any thread; each writes its own part of the outputs.
class Op {
public:
    virtual ~Op() = default;
    virtual int tasks() const = 0;
    virtual size_t scratch_bytes() const = 0;  // for each thread; aligned to 64
    // in: one Planes for each input; out: one for each Output of the spec.
    virtual void run(int task, const Planes* in, const Planes* out, unsigned char* scratch) const = 0;
    virtual std::string kernel() const = 0;  // such as "ternary-table avx2"
    virtual size_t weight_bytes() const { return 0; }
};

enum class Isa : uint8_t { Scalar, Avx2, Neon };

// `threads` is a hint for how finely to cut tasks; results do not depend on it.
std::unique_ptr<Op> make_conv(const ConvSpec&, Isa, int threads);

// out = formula(s_0 = a, s_1 = b): residual additions. Inputs U8, I8 or I32, each with its own type.
struct AddSpec {
    Shape shape;
    Type a = Type::I32, b = Type::I32;
    std::vector<Output> outputs;  // scale, offset: for each channel, J = 2
};
std::unique_ptr<Op> make_add(const AddSpec&, Isa, int threads);

// out = formula(s_0 = in): another precision of the same tensor.
struct RequantizeSpec {
    Shape shape;
    Type in_type = Type::I32;
    std::vector<Output> outputs;  // J = 1
};
std::unique_ptr<Op> make_requantize(const RequantizeSpec&, Isa, int threads);

struct Window {
    int kernel_h = 1, kernel_w = 1, stride_h = 1, stride_w = 1, pad_top = 0, pad_left = 0;
};

// out = formula(s_0 = sum over the window, zeros outside the image). The sum fits int32 (the loader checks).
struct AveragePoolSpec {
    Shape in, out;
    Type in_type = Type::I32;
    Window window;
    std::vector<Output> outputs;  // J = 1
};
std::unique_ptr<Op> make_average_pool(const AveragePoolSpec&, Isa, int threads);

// The largest code of the window; outside of the image there is nothing. Same type in and out.
// A 1x1 window with a stride is how every n-th pixel is taken.
struct MaxPoolSpec {
    Shape in, out;
    Type type = Type::U8;
    Window window;
};
std::unique_ptr<Op> make_max_pool(const MaxPoolSpec&, Isa, int threads);

// The image, uint8 with interleaved channels [H][W][C], to planes of codes: out[c] = table[c][pixel].
// Its only input is one "plane": the image.
struct LookupSpec {
    Shape shape;
    Type out_type = Type::I8;
    std::vector<uint8_t> table;  // [channels][256], codes as bytes
};
std::unique_ptr<Op> make_lookup(const LookupSpec&, Isa, int threads);

}  // namespace dbq
