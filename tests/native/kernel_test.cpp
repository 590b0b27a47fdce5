// Scalar kernels against an independent computation, vector kernels against scalar ones, bit by bit.
//
//     kernel_test [SEED [CASES [own]]]
//
// "own": only kernels of this build, and not the lengthy cases: for emulated processors.
// Every plane is an allocation of its own, of exactly the bytes it owns, so that a sanitizer sees any access
// beyond them. Inputs are compared with copies afterwards: kernels must not write them.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <random>

#include "any_width.h"
#include "kernels/isa/simd.h"
#include "kernels/select.h"

namespace {

using namespace dbq;

std::mt19937 generator;
bool own_only = false;
bool planes_together = false;

int random_int(int low, int high) { return std::uniform_int_distribution<int>(low, high)(generator); }
bool chance(int percent) { return random_int(1, 100) <= percent; }
template <class T> T pick(std::initializer_list<T> values) {
    return values.begin()[random_int(0, int(values.size()) - 1)];
}

// A table without the optional kernels: others must do their work.
Simd without_optional(Simd simd) {
    simd.depthwise_3x3 = nullptr;
    simd.lookup_three = nullptr;
    simd.multiply_quads = nullptr;
    simd.add_lists_and_quads = nullptr;
    simd.add_shuffled = nullptr;
    simd.depthwise_quads = nullptr;
    return simd;
}

// Plain loops (null), all vector kernels this processor can run, and drivers with vectors of other widths.
const std::vector<const Simd*>& simds() {
    static std::deque<Simd> made = {AnyWidth<8>::kernels("8 lanes"), AnyWidth<32>::kernels("32 lanes")};
    static const std::vector<const Simd*> all = [] {
        std::vector<const Simd*> found = {nullptr};
        if (!own_only) found.insert(found.end(), {&made[0], &made[1]});
        for (const Simd* simd : usable_simds(this_cpu())) {
            made.push_back(without_optional(*simd));
            found.insert(found.end(), {simd, &made.back()});
        }
        if (AVX512_KERNELS && !this_cpu().count("avx512"))
            std::printf("this processor has no AVX-512 with VNNI: its kernels are not tested\n");
        return found;
    }();
    return all;
}

constexpr size_t WIDEST_LANES = 32;

struct Aligned {
    unsigned char* bytes;
    explicit Aligned(size_t n)
        : bytes(static_cast<unsigned char*>(std::aligned_alloc(PLANE_ALIGNMENT, (n + 63) / 64 * 64))) {}
    Aligned(const Aligned&) = delete;
    ~Aligned() { std::free(bytes); }
};

// A tensor. Slack is filled with noise: kernels may read it, results must not depend on it.
struct Tensor {
    Shape shape;
    Type type;
    std::vector<std::unique_ptr<Aligned>> storage;
    std::vector<unsigned char*> pointers;

    // Each plane has a block of memory of its own, or planes follow each other, as in the engine.
    Tensor(Shape s, Type t) : shape(s), type(t) {
        const size_t bytes = plane_bytes(t, s.pixels(), WIDEST_LANES);
        if (planes_together) storage.push_back(std::make_unique<Aligned>(bytes * size_t(s.channels)));
        for (int c = 0; c < s.channels; ++c) {
            if (!planes_together) storage.push_back(std::make_unique<Aligned>(bytes));
            pointers.push_back(storage.back()->bytes + (planes_together ? bytes * size_t(c) : 0));
            for (size_t i = 0; i < bytes; ++i) pointers.back()[i] = static_cast<unsigned char>(generator());
        }
    }
    Planes planes() const { return {pointers.data()}; }
    size_t used_bytes() const { return shape.pixels() * size_of(type); }
    bool same(const Tensor& other) const {
        for (size_t c = 0; c < pointers.size(); ++c)
            if (std::memcmp(pointers[c], other.pointers[c], used_bytes())) return false;
        return true;
    }
    double at(int c, int y, int x) const {
        const size_t p = size_t(y) * size_t(shape.width) + size_t(x);
        switch (type) {
            case Type::U8: return pointers[size_t(c)][p];
            case Type::I8: return static_cast<signed char>(pointers[size_t(c)][p]);
            case Type::I32: {
                int32_t v;
                std::memcpy(&v, pointers[size_t(c)] + 4 * p, 4);
                return v;
            }
            default: {
                float v;
                std::memcpy(&v, pointers[size_t(c)] + 4 * p, 4);
                return double(v);
            }
        }
    }
    // 8-bit codes take all values, wider ones values up to `largest`; `percent_extreme` of them are extremes.
    void fill(int percent_extreme, int largest = 1 << 30) {
        for (unsigned char* plane : pointers)
            for (size_t i = 0; i < shape.pixels(); ++i) {
                const bool extreme = chance(percent_extreme);
                const int wide = extreme ? pick({-largest, 0, largest}) : random_int(-largest, largest);
                if (type == Type::I32) std::memcpy(plane + 4 * i, &wide, 4);
                else
                    plane[i] = extreme ? pick<unsigned char>({0, 127, 128, 255})
                                       : static_cast<unsigned char>(generator());
            }
    }
    void fill_with(unsigned char value) {
        for (unsigned char* plane : pointers) std::memset(plane, value, used_bytes());
    }
};

using Tensors = std::vector<std::unique_ptr<Tensor>>;

[[noreturn]] void fail(const std::string& what) {
    std::printf("FAILED: %s\n", what.c_str());
    std::exit(1);
}

// Runs all tasks in random order, or as one thread does, on scratch memory full of noise.
void run(const Op& op, const Tensors& in, Tensors& out) {
    std::vector<Planes> inputs, outputs;
    for (const auto& t : in) inputs.push_back(t->planes());
    for (const auto& t : out) outputs.push_back(t->planes());
    Aligned scratch(op.scratch_bytes());
    for (size_t i = 0; i < op.scratch_bytes(); ++i)
        scratch.bytes[i] = static_cast<unsigned char>(generator());
    if (generator() % 3 == 0) return op.run_all(inputs.data(), outputs.data(), scratch.bytes);
    std::vector<int> order(size_t(op.tasks()));
    for (size_t i = 0; i < order.size(); ++i) order[i] = int(i);
    std::shuffle(order.begin(), order.end(), generator);
    for (const int task : order) op.run(task, inputs.data(), outputs.data(), scratch.bytes);
}

Tensors copies_for(const std::vector<std::pair<Shape, Type>>& kinds) {
    Tensors tensors;
    for (const auto& [shape, type] : kinds) tensors.push_back(std::make_unique<Tensor>(shape, type));
    return tensors;
}

// All vector kernels of this processor and all thread counts give the bits of the scalar kernel; returns what
// that gave.
template <class Spec>
Tensors check_vectors(const Spec& spec, const Tensors& in, const std::vector<std::pair<Shape, Type>>& kinds,
                      const std::string& what) {
    std::vector<std::vector<unsigned char>> before;
    for (const auto& t : in)
        for (const unsigned char* p : t->pointers)
            before.emplace_back(p, p + plane_bytes(t->type, t->shape.pixels(), WIDEST_LANES));
    Tensors expected = copies_for(kinds);
    run(*make_op(spec, nullptr, 1), in, expected);
    for (const Simd* simd : simds())
        for (const int threads : {1, 2, 5}) {
            if (own_only && threads > 2) continue;
            const std::unique_ptr<Op> op = make_op(spec, simd, threads);
            Tensors got = copies_for(kinds);
            run(*op, in, got);
            for (size_t o = 0; o < got.size(); ++o)
                if (!got[o]->same(*expected[o]))
                    fail(what + ", output " + std::to_string(o) + ": " + kernel_name(spec, simd) + " for " +
                         std::to_string(threads) + " threads differs from scalar");
        }
    size_t i = 0;
    for (const auto& t : in)
        for (const unsigned char* p : t->pointers)
            if (std::memcmp(p, before[i].data(), before[i].size())) fail(what + ": an input was written");
            else ++i;
    return expected;
}

// The last lines of the formula, in the words of op.h.
double clamped_and_rounded(const Output& o, float t) {
    if (o.type == Type::F32 && o.low == 0 && o.high == 0) return double(t);
    const double clamped = std::fmin(std::fmax(double(t), double(o.low)), double(o.high));
    if (o.type == Type::F32) return clamped;
    double whole = std::floor(clamped);
    const double rest = clamped - whole;
    if (rest > 0.5 || (rest == 0.5 && std::fmod(whole, 2) != 0)) whole += 1;
    return whole;
}

// The formula in the words of op.h; volatile keeps every intermediate value a float.
double formula(const Output& o, const std::vector<int64_t>& sums, int k) {
    const size_t n = sums.size(), first = size_t(k) * n;
    volatile float t = 0;
    for (size_t j = 0; j < n; ++j) {
        volatile float code = float(sums[j]);
        volatile float product = code * o.scale[first + j];
        t = j ? t + product : product;
    }
    t = t + o.offset[size_t(k)];
    return clamped_and_rounded(o, t);
}

// The same, if v stands in place of a sum.
double formula(const Output& o, float v, int k) {
    volatile float t = v * o.scale[size_t(k)];
    t = t + o.offset[size_t(k)];
    return clamped_and_rounded(o, t);
}

template <class At>
void check_formula(const std::vector<Output>& outputs, const Tensors& got, const At& at,
                   const std::string& what) {
    const Shape shape = got[0]->shape;
    for (int k = 0; k < shape.channels; ++k)
        for (int y = 0; y < shape.height; ++y)
            for (int x = 0; x < shape.width; ++x) {
                const auto found = at(k, y, x);
                for (size_t o = 0; o < outputs.size(); ++o)
                    if (got[o]->at(k, y, x) != formula(outputs[o], found, k))
                        fail(what + ": scalar is wrong at " + std::to_string(k) + ", " + std::to_string(y) +
                             ", " + std::to_string(x));
            }
}

// Outputs of all types, with scales that use the range, some that overflow it by far, and exact halves.
std::vector<Output> random_outputs(int channels, int sums, double magnitude) {
    std::vector<Output> outputs;
    const int count = chance(70) ? 1 : random_int(2, 4);
    for (int i = 0; i < count; ++i) {
        Output o;
        o.type = pick({Type::U8, Type::I8, Type::I32, Type::F32});
        if (o.type == Type::U8) o.low = 0, o.high = float(pick({255, 15, 200}));
        if (o.type == Type::I8) o.low = float(pick({-128, -127, 0})), o.high = 127;
        if (o.type == Type::I32) o.low = float(pick({-(1 << 30), -300})), o.high = float(1 << 30);
        if (o.type == Type::F32 && chance(50))
            o.low = float(pick({0, -3})), o.high = float(pick({6, 1 << 30}));
        const int style = random_int(0, 3);
        for (int k = 0; k < channels; ++k) {
            for (int j = 0; j < sums; ++j) {
                const double unit = std::fmax(double(o.high), 100) / magnitude;
                const double scale = style == 0   ? 0.5
                                     : style == 1 ? 1e12
                                                  : unit * random_int(-1000, 1000) / 700;
                o.scale.push_back(float(scale));
            }
            o.offset.push_back(style == 0 ? float(random_int(-4, 4)) / 2 : float(random_int(-500, 500)) / 7);
        }
        outputs.push_back(o);
    }
    return outputs;
}

std::vector<std::pair<Shape, Type>> kinds_of(Shape shape, const std::vector<Output>& outputs) {
    std::vector<std::pair<Shape, Type>> kinds;
    for (const Output& o : outputs) kinds.emplace_back(shape, o.type);
    return kinds;
}

enum class Filling { Random, Dense, AllPlus, AllMinus, Zero, Alternating };

void fill_codes(ConvSpec& s, Filling filling) {
    const size_t n = size_t(s.branches) * size_t(s.out.channels) *
                     size_t(s.in.channels / s.groups * s.window.kernel_h * s.window.kernel_w);
    s.codes.resize(n);
    if (s.weights == Weights::Ternary) s.largest = 1;
    const int one = s.largest;
    for (size_t i = 0; i < n; ++i) switch (filling) {
            case Filling::Random:
                s.codes[i] = int8_t(chance(44) ? 0 : one == 1 ? pick({-1, 1}) : random_int(-one, one));
                break;
            case Filling::Dense: s.codes[i] = int8_t(one == 1 ? pick({-1, 1}) : random_int(-one, one)); break;
            case Filling::AllPlus: s.codes[i] = int8_t(one); break;
            case Filling::AllMinus: s.codes[i] = int8_t(-one); break;
            case Filling::Zero: s.codes[i] = 0; break;
            case Filling::Alternating: s.codes[i] = int8_t(i % 2 ? one : -one); break;
        }
}

std::string describe(const ConvSpec& s) {
    char text[256];
    std::snprintf(text, sizeof text,
                  "conv %dx%dx%d -> %dx%dx%d, kernel %dx%d, stride %d %d, pad %d %d, dilation %d %d, groups "
                  "%d, %s, %d branches, codes up to %d, input %d",
                  s.in.channels, s.in.height, s.in.width, s.out.channels, s.out.height, s.out.width,
                  s.window.kernel_h, s.window.kernel_w, s.window.stride_h, s.window.stride_w,
                  s.window.pad_top, s.window.pad_left, s.window.dilation_h, s.window.dilation_w, s.groups,
                  s.weights == Weights::Ternary ? "ternary" : "fixed", s.branches, s.largest, int(s.in_type));
    return text;
}

void check_conv(ConvSpec s, Filling filling, int input_byte = -1) {
    fill_codes(s, filling);
    const int inputs = s.in.channels / s.groups;
    s.outputs = random_outputs(s.out.channels, s.branches,
                               100.0 * std::sqrt(inputs * s.window.kernel_h * s.window.kernel_w) *
                                   (s.weights == Weights::Fixed ? 0.5 * s.largest : 1));
    Tensors in = copies_for({{s.in, s.in_type}});
    input_byte < 0 ? in[0]->fill(random_int(0, 50))
                   : in[0]->fill_with(static_cast<unsigned char>(input_byte));
    const Tensors got = check_vectors(s, in, kinds_of(s.out, s.outputs), describe(s));
    check_formula(
        s.outputs, got,
        [&](int k, int oy, int ox) {
            std::vector<int64_t> sums;
            for (int j = 0; j < s.branches; ++j) {
                int64_t sum = 0;
                for (int c = 0; c < inputs; ++c)
                    for (int ky = 0; ky < s.window.kernel_h; ++ky)
                        for (int kx = 0; kx < s.window.kernel_w; ++kx) {
                            const int y = oy * s.window.stride_h - s.window.pad_top +
                                          ky * s.window.dilation_h,
                                      x = ox * s.window.stride_w - s.window.pad_left +
                                          kx * s.window.dilation_w;
                            if (y < 0 || x < 0 || y >= s.in.height || x >= s.in.width) continue;
                            const size_t code =
                                (((size_t(j) * size_t(s.out.channels) + size_t(k)) * size_t(inputs) +
                                  size_t(c)) *
                                     size_t(s.window.kernel_h) +
                                 size_t(ky)) *
                                    size_t(s.window.kernel_w) +
                                size_t(kx);
                            sum += int64_t(s.codes[code]) *
                                   int64_t(in[0]->at(k / (s.out.channels / s.groups) * inputs + c, y, x));
                        }
                sums.push_back(sum);
            }
            return sums;
        },
        describe(s));
}

int around_power_of_two(int highest) {
    return std::max(1, (1 << random_int(0, highest)) + random_int(-1, 1));
}

void set_output_size(ConvSpec& s) {
    // With up to a kernel of padding below and to the right: a file may state any output size.
    const auto out = [](int in, int k, int d, int stride, int pad) {
        return std::max(1, (in + pad + random_int(0, k) - (k - 1) * d - 1) / stride + 1);
    };
    s.out.height =
        out(s.in.height, s.window.kernel_h, s.window.dilation_h, s.window.stride_h, s.window.pad_top);
    s.out.width =
        out(s.in.width, s.window.kernel_w, s.window.dilation_w, s.window.stride_w, s.window.pad_left);
}

ConvSpec random_conv() {
    ConvSpec s;
    s.weights = chance(50) ? Weights::Ternary : Weights::Fixed;
    s.largest = pick({127, 15, 7, 7});
    s.branches = s.weights == Weights::Ternary ? random_int(1, 3) : 1;
    s.in_type = chance(65) ? Type::U8 : Type::I8;
    const int kind = random_int(0, 3);  // pointwise, depthwise, grouped, any
    s.groups = kind == 1 ? random_int(2, 20) : kind == 2 ? random_int(2, 5) : 1;
    const int inputs = kind == 1 ? 1 : around_power_of_two(kind == 0 ? 8 : 5),
              outputs = kind == 1 ? random_int(1, 2) : around_power_of_two(6);
    s.in = {inputs * s.groups, around_power_of_two(4), around_power_of_two(5)};
    s.out.channels = outputs * s.groups;
    if (kind == 0) {
        s.out.height = s.in.height;
        s.out.width = s.in.width;
        return s;
    }
    s.window.kernel_h = chance(50) ? 3 : random_int(1, chance(10) ? 11 : 5);
    s.window.kernel_w = chance(50) ? 3 : random_int(1, chance(10) ? 11 : 5);
    s.window.stride_h = random_int(1, 3);
    s.window.stride_w = chance(70) ? s.window.stride_h : random_int(1, 4);
    s.window.pad_top = random_int(0, s.window.kernel_h);
    s.window.pad_left = random_int(0, s.window.kernel_w);
    s.window.dilation_h = chance(80) ? 1 : random_int(1, 3);
    s.window.dilation_w = chance(80) ? 1 : random_int(1, 3);
    set_output_size(s);
    return s;
}

// What select.cpp leaves to dense kernels, those of rows and quads and of shuffles compute too, whatever the
// shape.
void check_mixed(ConvSpec s, Filling filling, int input_byte = -1) {
    fill_codes(s, filling);
    s.outputs = random_outputs(s.out.channels, 1, 100.0 * std::sqrt(s.taps()));
    Tensors in = copies_for({{s.in, s.in_type}});
    input_byte < 0 ? in[0]->fill(random_int(0, 50))
                   : in[0]->fill_with(static_cast<unsigned char>(input_byte));
    const auto kinds = kinds_of(s.out, s.outputs);
    Tensors expected = copies_for(kinds);
    run(*make_op(s, nullptr, 1), in, expected);
    for (const Simd* simd : simds()) {
        if (!simd) continue;
        const auto check = [&](const char* name, Maker<ConvSpec>* make) {
            for (const int threads : {1, 2, 5}) {
                Tensors got = copies_for(kinds);
                run(*make(s, simd, threads), in, got);
                for (size_t o = 0; o < got.size(); ++o)
                    if (!got[o]->same(*expected[o]))
                        fail(describe(s) + ", output " + std::to_string(o) + ": " + name + " for " +
                             std::to_string(threads) + " threads differs from scalar");
            }
        };
        if (simd->add_lists_and_quads) check("table-and-quads", vec::make_mixed_conv);
        if (simd->add_shuffled) check("shuffles-and-quads", vec::make_shuffle_conv);
    }
}

void check_random_mixed() {
    ConvSpec s;
    s.in_type = chance(65) ? Type::U8 : Type::I8;
    s.in = {around_power_of_two(9), 1, chance(50) ? around_power_of_two(8) : random_int(1, 300)};
    s.out = {around_power_of_two(8), s.in.height, s.in.width};
    check_mixed(s, chance(80) ? Filling::Random : Filling::Dense);
}

// Sums of 16 bits are full; all additions, all subtractions, nothing.
void check_hostile_mixed() {
    for (const Type type : {Type::U8, Type::I8})
        for (const Filling filling :
             {Filling::AllPlus, Filling::AllMinus, Filling::Alternating, Filling::Zero}) {
            ConvSpec s;
            s.in_type = type;
            s.in = {1500, 1, 150};
            s.out = {20, 1, 150};
            check_mixed(s, filling, type == Type::U8 ? 255 : 128);
            check_mixed(s, filling, 127);
        }
}

// Lines of several strips of 16 or 64 pixels, the last of which is not full.
void check_wide_depthwise() {
    for (const int kernel : {3, 5})
        for (const int stride : {1, 2})
            for (const int width : {17, 36, 65, 100}) {
                ConvSpec s;
                s.weights = Weights::Fixed;
                s.groups = 3;
                s.in = {3, 6, width * stride};
                s.out = {3, 6 / stride, width};
                s.window.kernel_h = s.window.kernel_w = kernel;
                s.window.stride_h = s.window.stride_w = stride;
                s.window.pad_top = s.window.pad_left = kernel / 2;
                for (int i = 0; i < 3; ++i) check_conv(s, Filling::Dense);
            }
}

void check_hostile_convs() {
    const std::pair<Weights, int> KINDS[] = {
        {Weights::Ternary, 1}, {Weights::Fixed, 127}, {Weights::Fixed, 15}, {Weights::Fixed, 7}};
    for (const auto& [weights, largest] : KINDS)
        for (const Type type : {Type::U8, Type::I8})
            for (const Filling filling :
                 {Filling::AllPlus, Filling::AllMinus, Filling::Alternating, Filling::Zero}) {
                const int extreme = type == Type::U8 ? 255 : 128;
                for (const int outputs : {2, 50})
                    for (const int width : {1, 17}) {
                        ConvSpec s;
                        s.weights = weights;
                        s.largest = largest;
                        s.in_type = type;
                        s.in = {outputs == 2 ? 4096 : 1500, 1, width};
                        s.out = {outputs, 1, width};
                        check_conv(s, filling, extreme);
                        check_conv(s, filling, 127);
                    }
                // Around the lengths at which sums of 16 bits are full.
                for (const int inputs : {127, 128, 129, 130, 255, 256, 257})
                    for (const int outputs : {2, 50}) {
                        ConvSpec s;
                        s.weights = weights;
                        s.largest = largest;
                        s.in_type = type;
                        s.in = {inputs, 1, 17};
                        s.out = {outputs, 1, 17};
                        check_conv(s, filling, extreme);
                    }
                ConvSpec depthwise;
                depthwise.weights = weights;
                depthwise.largest = largest;
                depthwise.in_type = type;
                depthwise.in = depthwise.out = {3, 12, 12};
                depthwise.groups = 3;
                depthwise.window.kernel_h = depthwise.window.kernel_w = 11;
                depthwise.window.pad_top = depthwise.window.pad_left = 5;
                check_conv(depthwise, filling, extreme);
            }
}

void share_scales(std::vector<Output>& outputs, size_t branches) {
    for (Output& output : outputs) {
        for (size_t i = branches; i < output.scale.size(); ++i) output.scale[i] = output.scale[i - branches];
        std::fill(output.offset.begin(), output.offset.end(), chance(50) ? 0.0f : output.offset[0]);
    }
}

void check_elementwise() {
    planes_together = chance(60);
    const Shape shape = {random_int(1, 9), planes_together ? 8 : around_power_of_two(4),
                         around_power_of_two(5)};
    const Type a = pick({Type::U8, Type::I8, Type::I32}), b = pick({Type::U8, Type::I8, Type::I32});
    Tensors in = copies_for({{shape, a}, {shape, b}});
    for (auto& t : in) t->fill(random_int(0, 50));
    CombineSpec add{shape, {a, b}, random_outputs(shape.channels, 2, 20000)};
    if (chance(50)) share_scales(add.outputs, 2);
    Tensors got = check_vectors(add, in, kinds_of(shape, add.outputs), "add");
    check_formula(
        add.outputs, got,
        [&](int k, int y, int x) {
            return std::vector<int64_t>{int64_t(in[0]->at(k, y, x)), int64_t(in[1]->at(k, y, x))};
        },
        "add");
    CombineSpec requantize{shape, {a}, random_outputs(shape.channels, 1, 20000)};
    if (chance(50)) share_scales(requantize.outputs, 1);
    got = check_vectors(requantize, in, kinds_of(shape, requantize.outputs), "requantize");
    check_formula(
        requantize.outputs, got,
        [&](int k, int y, int x) { return std::vector<int64_t>{int64_t(in[0]->at(k, y, x))}; }, "requantize");
    planes_together = false;
}

Window random_window(const Shape& in, Shape& out) {
    ConvSpec s;
    s.in = in;
    if (chance(25)) {
        s.window.kernel_h = in.height;
        s.window.kernel_w = in.width;
        out.height = out.width = 1;
        return s.window;
    }
    s.window.kernel_h = random_int(1, 4);
    s.window.kernel_w = random_int(1, 4);
    s.window.stride_h = random_int(1, 3);
    s.window.stride_w = random_int(1, 3);
    s.window.pad_top = random_int(0, s.window.kernel_h - 1);
    s.window.pad_left = random_int(0, s.window.kernel_w - 1);
    set_output_size(s);
    out.height = s.out.height;
    out.width = s.out.width;
    return s.window;
}

void check_pools() {
    const Shape in_shape = {random_int(1, 9), around_power_of_two(4), around_power_of_two(5)};
    AveragePoolSpec average;
    average.in = average.out = in_shape;
    average.in_type = pick({Type::U8, Type::I8, Type::I32});
    average.window = random_window(in_shape, average.out);
    const Window& w = average.window;
    average.outputs = random_outputs(in_shape.channels, 1, 100.0 * w.kernel_h * w.kernel_w);
    Tensors in = copies_for({{in_shape, average.in_type}});
    in[0]->fill(random_int(0, 50), INT32_MAX / std::max(w.kernel_h * w.kernel_w, 2));
    const auto for_window = [&](int y, int x, const std::function<void(int, int)>& visit) {
        for (int ky = 0; ky < w.kernel_h; ++ky)
            for (int kx = 0; kx < w.kernel_w; ++kx) {
                const int iy = y * w.stride_h - w.pad_top + ky, ix = x * w.stride_w - w.pad_left + kx;
                if (iy >= 0 && ix >= 0 && iy < in_shape.height && ix < in_shape.width) visit(iy, ix);
            }
    };
    Tensors got = check_vectors(average, in, kinds_of(average.out, average.outputs), "average pool");
    check_formula(
        average.outputs, got,
        [&](int k, int y, int x) {
            int64_t sum = 0;
            for_window(y, x, [&](int iy, int ix) { sum += int64_t(in[0]->at(k, iy, ix)); });
            return std::vector<int64_t>{sum};
        },
        "average pool");

    average.is_mean = true;  // of windows that overlap the image, as the format demands
    average.out.height = std::min(average.out.height, (in_shape.height - 1 + w.pad_top) / w.stride_h + 1);
    average.out.width = std::min(average.out.width, (in_shape.width - 1 + w.pad_left) / w.stride_w + 1);
    got = check_vectors(average, in, kinds_of(average.out, average.outputs), "mean pool");
    check_formula(
        average.outputs, got,
        [&](int k, int y, int x) {
            int64_t sum = 0, count = 0;
            for_window(y, x, [&](int iy, int ix) { sum += int64_t(in[0]->at(k, iy, ix)), ++count; });
            return float(sum) / float(count);
        },
        "mean pool");

    MaxPoolSpec largest{in_shape, average.out, pick({Type::U8, Type::I8, Type::I32}), w};
    in = copies_for({{in_shape, largest.type}});
    in[0]->fill(random_int(0, 50));
    got = check_vectors(largest, in, {{largest.out, largest.type}}, "max pool");
    for (int k = 0; k < in_shape.channels; ++k)
        for (int y = 0; y < largest.out.height; ++y)
            for (int x = 0; x < largest.out.width; ++x) {
                double best = -HUGE_VAL;
                for_window(y, x, [&](int iy, int ix) { best = std::fmax(best, in[0]->at(k, iy, ix)); });
                if (best > -HUGE_VAL && got[0]->at(k, y, x) != best) fail("max pool: scalar is wrong");
            }
}

std::vector<float> random_floats(int count, float largest) {
    std::vector<float> floats;
    for (int i = 0; i < count; ++i) floats.push_back(float(random_int(-1000, 1000)) / 1000 * largest);
    return floats;
}

// `volatile` keeps every step a float of its own.
float curve_at(const CurveSpec& s, double code) {
    volatile float x = float(code) * s.scale, u = x;
    if (x < s.low) u = s.low;
    if (x > s.high) u = s.high;
    volatile float distance = u - s.low, p = distance * s.density;
    const int i = std::min(int(std::floor(double(p))), int(s.knots.size()) - 2);
    volatile float f = p - float(i), step = s.knots[size_t(i) + 1] - s.knots[size_t(i)], rise = f * step;
    volatile float g = s.knots[size_t(i)] + rise, product = x * g;
    return s.times_x ? product : g;
}

void check_curve() {
    CurveSpec s;
    // Up to more pixels than a tile has.
    s.shape = {random_int(1, 5), around_power_of_two(chance(10) ? 7 : 4), around_power_of_two(5)};
    s.in_type = pick({Type::U8, Type::I8, Type::I32});
    s.scale = s.in_type == Type::I32 ? pick({1e-7f, 1.0f, 1e-30f}) : pick({0.05f, 3.0f, 1e-38f});
    s.times_x = chance(50);
    s.low = pick({-3.0f, 0.0f, -0.001f, -8.0f, 1.0f});
    s.high = s.low + pick({6.0f, 0.5f, 1e9f});
    s.knots = random_floats(pick({1, 2, 7, 8, 9, 300}) + 1, pick({1.0f, 5e8f}));
    s.density = float(s.segments()) / (s.high - s.low);
    s.outputs = random_outputs(s.shape.channels, 1, s.times_x ? 20 : 1);
    Tensors in = copies_for({{s.shape, s.in_type}});
    in[0]->fill(random_int(0, 50));
    const Tensors got = check_vectors(s, in, kinds_of(s.shape, s.outputs), "curve");
    check_formula(
        s.outputs, got, [&](int k, int y, int x) { return curve_at(s, in[0]->at(k, y, x)); }, "curve");
}

void check_multiply() {
    MultiplySpec s;
    s.shape = s.factor = {random_int(1, 5), around_power_of_two(chance(10) ? 7 : 4), around_power_of_two(5)};
    const int kind = random_int(0, 2);
    if (kind == 1) s.factor.height = s.factor.width = 1;
    if (kind == 2) s.factor.channels = 1;
    for (Type& type : s.types) type = pick({Type::U8, Type::I8, Type::I32});
    s.outputs = random_outputs(s.shape.channels, 1, pick({1e4, 1e9, 1e16}));
    Tensors in = copies_for({{s.shape, s.types[0]}, {s.factor, s.types[1]}});
    for (auto& t : in) t->fill(random_int(0, 50));
    const Tensors got = check_vectors(s, in, kinds_of(s.shape, s.outputs), "multiply");
    check_formula(
        s.outputs, got,
        [&](int k, int y, int x) {
            const double b = in[1]->at(kind == 2 ? 0 : k, kind == 1 ? 0 : y, kind == 1 ? 0 : x);
            return float(in[0]->at(k, y, x)) * float(b);
        },
        "multiply");
}

void check_pixels() {
    const Shape shape = {random_int(1, 5), around_power_of_two(4), around_power_of_two(4)};
    PixelsSpec s{shape, {shape.channels, random_int(1, 20), random_int(1, 40)}, Type::U8, {}, {}};
    s.type = pick({Type::U8, Type::I8, Type::I32});
    const auto places = [](int count, int size) {
        std::vector<uint16_t> found;
        for (int i = 0; i < count; ++i)
            found.push_back(chance(20)            ? NOTHING
                            : i > 0 && chance(30) ? found.back()
                                                  : uint16_t(random_int(0, size - 1)));
        return found;
    };
    s.rows = places(s.out.height, s.in.height);
    s.columns = places(s.out.width, s.in.width);
    Tensors in = copies_for({{s.in, s.type}});
    in[0]->fill(20);
    const Tensors got = check_vectors(s, in, {{s.out, s.type}}, "pixels");
    for (int k = 0; k < s.out.channels; ++k)
        for (int y = 0; y < s.out.height; ++y)
            for (int x = 0; x < s.out.width; ++x) {
                const uint16_t row = s.rows[size_t(y)], column = s.columns[size_t(x)];
                const double expected = row == NOTHING || column == NOTHING ? 0 : in[0]->at(k, row, column);
                if (got[0]->at(k, y, x) != expected) fail("pixels: scalar is wrong");
            }
}

void check_bilinear() {
    BilinearSpec s;
    s.in = {random_int(1, 5), around_power_of_two(4), around_power_of_two(4)};
    s.out = {s.in.channels, around_power_of_two(5), around_power_of_two(5)};
    s.in_type = pick({Type::U8, Type::I8, Type::I32});
    const bool rising = chance(50);  // as in resized images
    const auto blends = [&](int count, int size) {
        std::vector<Blend> found;
        for (int i = 0; i < count; ++i) {
            const int first = rising ? i * size / count : random_int(0, size - 1);
            const int second = rising ? std::min(first + 1, size - 1) : random_int(0, size - 1);
            const float share = chance(20) ? pick({0.0f, 1.0f, 0.5f}) : float(random_int(0, 1000)) / 1000;
            found.push_back({uint16_t(first), uint16_t(second), share});
        }
        return found;
    };
    s.rows = blends(s.out.height, s.in.height);
    s.columns = blends(s.out.width, s.in.width);
    s.outputs = random_outputs(s.out.channels, 1, 100);
    Tensors in = copies_for({{s.in, s.in_type}});
    in[0]->fill(random_int(0, 50));
    const Tensors got = check_vectors(s, in, kinds_of(s.out, s.outputs), "bilinear");
    const auto mix = [](float p, float q, float share) {
        volatile float difference = q - p, part = share * difference;
        return p + part;
    };
    check_formula(
        s.outputs, got,
        [&](int k, int y, int x) {
            const Blend &row = s.rows[size_t(y)], &column = s.columns[size_t(x)];
            float mixed[2];
            for (const int i : {0, 1}) {
                const int from = i == 0 ? row.first : row.second;
                mixed[i] = mix(float(in[0]->at(k, from, column.first)),
                               float(in[0]->at(k, from, column.second)), column.share);
            }
            return mix(mixed[0], mixed[1], row.share);
        },
        "bilinear");
}

void check_lookup() {
    LookupSpec s;
    s.shape = {random_int(1, 4), around_power_of_two(4), around_power_of_two(4)};
    s.out_type = pick({Type::U8, Type::I8});
    for (int i = 0; i < 256 * s.shape.channels; ++i) s.table.push_back(uint8_t(generator()));
    Tensors in = copies_for({{{1, s.shape.height, s.shape.width * s.shape.channels}, Type::U8}});
    const Tensors got = check_vectors(s, in, {{s.shape, s.out_type}}, "lookup");
    for (int c = 0; c < s.shape.channels; ++c)
        for (int y = 0; y < s.shape.height; ++y)
            for (int x = 0; x < s.shape.width; ++x) {
                const uint8_t code =
                    s.table[size_t(256 * c) + size_t(in[0]->at(0, y, x * s.shape.channels + c))];
                if (got[0]->at(c, y, x) != (s.out_type == Type::U8 ? double(code) : double(int8_t(code))))
                    fail("lookup: scalar is wrong");
            }
}

}  // namespace

int main(int argc, char** argv) {
    const unsigned seed = argc > 1 ? unsigned(std::atoi(argv[1])) : 1;
    const int cases = argc > 2 ? std::atoi(argv[2]) : 300;
    own_only = argc > 3;
    std::printf("seed %u, %d cases\n", seed, cases);
    generator.seed(seed);
    if (!own_only) check_hostile_convs();
    if (!own_only) check_hostile_mixed();
    check_wide_depthwise();
    for (int i = 0; i < cases; ++i) {
        generator.seed(seed + unsigned(i) * 7919u);
        check_conv(random_conv(), chance(70) ? Filling::Random
                                             : pick({Filling::Dense, Filling::AllPlus, Filling::AllMinus,
                                                     Filling::Alternating, Filling::Zero}));
        check_random_mixed();
        check_elementwise();
        check_pools();
        check_lookup();
        check_curve();
        check_multiply();
        check_pixels();
        check_bilinear();
    }
    std::printf("passed\n");
    return 0;
}
