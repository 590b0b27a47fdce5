// Convolutions, linear layers included: sums of codes times weights, one for each branch.
#include <array>

#include "file/parser.h"
#include "ops/loops.h"

namespace dbq {
namespace {

// ---- Packed weights to codes: "Weights" in docs/format.md. Nothing has looked at their values before.

constexpr size_t TRITS = 5;
constexpr int BYTES = 243;  // 3^5

using Trits = std::array<std::array<int8_t, TRITS>, BYTES>;

constexpr Trits make_trits() {
    Trits table{};
    for (int byte = 0; byte < BYTES; ++byte)
        for (int i = 0, rest = byte; i < int(TRITS); ++i, rest /= 3)
            table[size_t(byte)][size_t(i)] = int8_t(rest % 3 - 1);
    return table;
}

std::vector<int8_t> unpack_ternary(Bytes packed, size_t count) {
    static constexpr Trits CODES = make_trits();
    std::vector<int8_t> codes(packed.size * TRITS);
    for (size_t i = 0; i < packed.size; ++i) {
        const uint8_t byte = packed.data[i];
        if (byte >= BYTES) fail(DBQ_BAD_FILE, "byte %zu of the weights is %d, expected below 243", i, byte);
        for (size_t trit = 0; trit < TRITS; ++trit) codes[i * TRITS + trit] = CODES[byte][trit];
    }
    for (size_t i = count; i < codes.size(); ++i)
        if (codes[i] != -1) fail(DBQ_BAD_FILE, "the last byte of the weights is not filled up with trits 0");
    codes.resize(count);
    return codes;
}

std::vector<int8_t> unpack_fixed(Bytes packed, size_t count, int bits) {
    std::vector<int8_t> codes(count);
    const int sign = 1 << (bits - 1);
    uint32_t window = 0;  // bits read and not used yet, the least significant first
    int held = 0;
    size_t next = 0;
    for (int8_t& code : codes) {
        if (held < bits) {
            window |= uint32_t(packed.data[next++]) << held;
            held += 8;
        }
        const int field = int(window & ((1u << bits) - 1));
        window >>= bits;
        held -= bits;
        if (field == sign) fail(DBQ_BAD_FILE, "a weight is %d, expected at least %d", -sign, 1 - sign);
        code = int8_t((field ^ sign) - sign);
    }
    if (window != 0) fail(DBQ_BAD_FILE, "the last byte of the weights is not filled up with zeros");
    return codes;
}

// The forms of weights in a file, by the numbers of docs/format.md.
enum class Form { Ternary, Fixed, Joined };

// What follows the results: as many codes as there are taps, for each kernel and branch, and how they are
// packed.
struct Packed {
    Form form;
    int size;  // branches, or bits
    size_t count;
    Bytes factors, bytes;
};

// The whole numbers of a kernel add up to at most:
int largest_factors(int branches) { return branches == 2 ? 7 : 15; }

void check_factors(Bytes factors, int branches) {
    for (size_t k = 0; k < factors.size; k += size_t(branches)) {
        int sum = 0;
        for (int j = 0; j < branches; ++j) sum += factors.data[k + size_t(j)];
        if (sum > largest_factors(branches))
            fail(DBQ_BAD_FILE, "factors that add up to %d, expected at most %d", sum,
                 largest_factors(branches));
    }
}

// Branches, one behind the other, as one plane of integers.
std::vector<int8_t> join(const std::vector<int8_t>& codes, Bytes factors, int branches) {
    const size_t plane = codes.size() / size_t(branches), kernels = factors.size / size_t(branches),
                 taps = plane / kernels;
    std::vector<int8_t> integers(plane);
    for (size_t k = 0; k < kernels; ++k)
        for (int j = 0; j < branches; ++j) {
            const int factor = factors.data[k * size_t(branches) + size_t(j)];
            const int8_t* const from = codes.data() + size_t(j) * plane + k * taps;
            for (size_t i = 0; i < taps; ++i)
                integers[k * taps + i] = int8_t(integers[k * taps + i] + factor * from[i]);
        }
    return integers;
}

std::vector<int8_t> unpack(const Packed& packed) {
    if (packed.form == Form::Fixed) return unpack_fixed(packed.bytes, packed.count, packed.size);
    const std::vector<int8_t> codes = unpack_ternary(packed.bytes, packed.count);
    return packed.form == Form::Ternary ? codes : join(codes, packed.factors, packed.size);
}

}  // namespace

void read_convolution(Parser& in, Operation& op) {
    ConvSpec spec;
    Packed packed;
    const Tensor& from = in.input(op, Type::I8);
    spec.in = from.shape;
    spec.in_type = from.type;
    spec.window = in.window(true);
    const uint32_t channels = uint32_t(spec.in.channels);
    spec.groups = int(in_range("groups", in.bytes.u32(), 1, channels));
    packed.form = static_cast<Form>(in_range("form of the weights", in.bytes.u8(), 0, 2));
    const bool fixed = packed.form == Form::Fixed, joined = packed.form == Form::Joined;
    const uint32_t size = fixed ? in_range("bits of a weight", in.bytes.u8(), 2, 8)
                                : in_range("branches", in.bytes.u8(), joined ? 2 : 1, 3);
    packed.size = int(size);
    const int planes = fixed ? 1 : packed.size;
    spec.weights = packed.form == Form::Ternary ? Weights::Ternary : Weights::Fixed;
    spec.branches = joined ? 1 : planes;
    spec.largest = fixed ? (1 << (size - 1)) - 1 : joined ? largest_factors(packed.size) : 1;
    spec.outputs = in.results(op, uint32_t(spec.branches));
    spec.out = in.tensor(op.outputs[0]).shape;
    if (spec.in.channels % spec.groups != 0 || spec.out.channels % spec.groups != 0)
        fail(DBQ_BAD_FILE, "%d groups do not divide %d and %d channels", spec.groups, spec.in.channels,
             spec.out.channels);
    check_overlap(spec.window, spec.in, spec.out);
    const uint64_t taps =
        uint64_t(spec.inputs()) * uint64_t(spec.window.kernel_h) * uint64_t(spec.window.kernel_w);
    if (taps > MAX_KERNEL_WEIGHTS)
        fail(DBQ_BAD_FILE, "%llu weights in a kernel, expected at most %u",
             static_cast<unsigned long long>(taps), MAX_KERNEL_WEIGHTS);
    if (joined) {
        packed.factors = in.bytes.bytes(uint64_t(spec.out.channels) * size);
        check_factors(packed.factors, packed.size);
    }
    packed.count = taps * uint64_t(spec.out.channels) * uint64_t(planes);
    packed.bytes = in.bytes.bytes(fixed ? (packed.count * size + 7) / 8 : (packed.count + 4) / 5);
    op.precision = std::to_string(size) + (fixed ? "b" : "T");
    op.macs = taps * uint64_t(spec.out.channels) * spec.out.pixels();
    op.work = op.macs * uint64_t(planes);
    op.build = [spec = std::move(spec), packed](const Simd* simd, int threads) {
        ConvSpec whole = spec;
        whole.codes = unpack(packed);
        return builder(std::move(whole))(simd, threads);
    };
}

namespace scalar {

static int32_t sum_at(const ConvSpec& s, const Planes& in, int j, int k, int out_y, int out_x) {
    const Window& w = s.window;
    const int first = k / s.outputs_in_group() * s.inputs();
    const int8_t* codes = s.kernel(j, k);
    int32_t sum = 0;
    for (int c = 0; c < s.inputs(); ++c)
        for (int ky = 0; ky < w.kernel_h; ++ky)
            for (int kx = 0; kx < w.kernel_w; ++kx, ++codes) {
                const int y = out_y * w.stride_h - w.pad_top + ky * w.dilation_h;
                const int x = out_x * w.stride_w - w.pad_left + kx * w.dilation_w;
                if (y < 0 || y >= s.in.height || x < 0 || x >= s.in.width) continue;
                sum += *codes * read_code(s.in_type, in.plane[first + c], s.in.pixel(y, x));
            }
    return sum;
}

static void convolution(const ConvSpec& s, Range channels, const Planes* in, const Planes* out) {
    write_elements(s.outputs, s.branches, s.out, channels, out, [&](int k, int y, int x, int32_t* sums) {
        for (int j = 0; j < s.branches; ++j) sums[j] = sum_at(s, in[0], j, k, y, x);
    });
}

std::unique_ptr<Op> make_conv(const ConvSpec& spec, const Simd*, int threads) {
    return make_loops(spec, convolution, spec.out.channels, threads, spec.codes.size());
}

}  // namespace scalar
}  // namespace dbq
