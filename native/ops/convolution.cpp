// Convolutions, linear layers included: sums of codes times weights, one for each branch.
#include "file/parser.h"
#include "file/unpack.h"
#include "kernels/formula.h"
#include "kernels/ranges.h"

namespace dbq {

void read_convolution(Parser& in, Operation& op) {
    ConvSpec spec;
    const Tensor& from = in.input(op, Type::I8);
    spec.in = from.shape;
    spec.in_type = from.type;
    spec.window = in.window(true);
    const uint32_t channels = uint32_t(spec.in.channels);
    spec.groups = int(in_range("groups", in.bytes.u32(), 1, channels));
    spec.weights = static_cast<Weights>(in_range("form of the weights", in.bytes.u8(), 0, 1));
    const bool ternary = spec.weights == Weights::Ternary;
    const uint32_t size = ternary ? in_range("branches", in.bytes.u8(), 1, 3)
                                  : in_range("bits of a weight", in.bytes.u8(), 2, 8);
    spec.branches = ternary ? int(size) : 1;
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
    const uint64_t codes = taps * uint64_t(spec.out.channels) * uint64_t(spec.branches);
    const Bytes packed = in.bytes.bytes(ternary ? (codes + 4) / 5 : (codes * size + 7) / 8);
    op.precision = std::to_string(size) + (ternary ? "T" : "b");
    op.macs = taps * uint64_t(spec.out.channels) * spec.out.pixels();
    op.build = [spec = std::move(spec), packed, codes, size](const Simd* simd, int threads) {
        ConvSpec whole = spec;
        whole.codes = spec.weights == Weights::Ternary ? unpack_ternary(packed, codes)
                                                       : unpack_fixed(packed, codes, int(size));
        return Built{make_op(whole, simd, threads), kernel_name(whole, simd)};
    };
}

namespace scalar {
namespace {

class Conv final : public Op {
public:
    Conv(const ConvSpec& spec, int threads) : spec_(spec), parts_(parts_for(spec.out.channels, threads)) {}

    int tasks() const override { return parts_; }
    size_t weight_bytes() const override { return spec_.codes.size(); }

    void run(int task, const Planes* in, const Planes* out, unsigned char*) const override {
        const Range channels = part(spec_.out.channels, parts_, task);
        for (int k = channels.begin; k < channels.end; ++k)
            for (int y = 0; y < spec_.out.height; ++y)
                for (int x = 0; x < spec_.out.width; ++x) {
                    int32_t sums[3];
                    for (int j = 0; j < spec_.branches; ++j) sums[j] = sum(in[0], j, k, y, x);
                    const size_t pixel = size_t(y) * size_t(spec_.out.width) + size_t(x);
                    for (size_t o = 0; o < spec_.outputs.size(); ++o)
                        write_element(spec_.outputs[o], sums, spec_.branches, k, out[o].plane[k], pixel);
                }
    }

private:
    int32_t sum(const Planes& in, int j, int k, int out_y, int out_x) const {
        const ConvSpec& s = spec_;
        const Window& w = s.window;
        const int first = k / s.outputs_in_group() * s.inputs();
        const int8_t* codes =
            s.codes.data() + (size_t(j) * size_t(s.out.channels) + size_t(k)) * size_t(s.taps());
        int32_t sum = 0;
        for (int c = 0; c < s.inputs(); ++c)
            for (int ky = 0; ky < w.kernel_h; ++ky)
                for (int kx = 0; kx < w.kernel_w; ++kx, ++codes) {
                    const int y = out_y * w.stride_h - w.pad_top + ky * w.dilation_h;
                    const int x = out_x * w.stride_w - w.pad_left + kx * w.dilation_w;
                    if (y < 0 || y >= s.in.height || x < 0 || x >= s.in.width) continue;
                    const size_t pixel = size_t(y) * size_t(s.in.width) + size_t(x);
                    sum += *codes * read_code(s.in_type, in.plane[first + c], pixel);
                }
        return sum;
    }

    const ConvSpec spec_;
    const int parts_;
};

}  // namespace

std::unique_ptr<Op> make_conv(const ConvSpec& spec, const Simd*, int threads) {
    return std::make_unique<Conv>(spec, threads);
}

}  // namespace scalar
}  // namespace dbq
