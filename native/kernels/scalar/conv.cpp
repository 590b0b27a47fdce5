// Convolution in plain loops.
#include "kernels/formula.h"
#include "kernels/ranges.h"
#include "kernels/scalar/scalar.h"

namespace dbq::scalar {
namespace {

class Conv final : public Op {
public:
    Conv(const ConvSpec& spec, int threads) : spec_(spec), parts_(parts_for(spec.out.channels, threads)) {}

    int tasks() const override { return parts_; }
    size_t scratch_bytes() const override { return 0; }
    std::string kernel() const override { return "convolution scalar"; }
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
        const int inputs = s.in.channels / s.groups, first = k / (s.out.channels / s.groups) * inputs;
        const int8_t* codes = s.codes.data() + (size_t(j) * size_t(s.out.channels) + size_t(k)) *
                                                   size_t(inputs * s.kernel_h * s.kernel_w);
        int32_t sum = 0;
        for (int c = 0; c < inputs; ++c)
            for (int ky = 0; ky < s.kernel_h; ++ky)
                for (int kx = 0; kx < s.kernel_w; ++kx, ++codes) {
                    const int y = out_y * s.stride_h - s.pad_top + ky * s.dilation_h;
                    const int x = out_x * s.stride_w - s.pad_left + kx * s.dilation_w;
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

std::unique_ptr<Op> make_conv(const ConvSpec& spec, int threads) {
    return std::make_unique<Conv>(spec, threads);
}

}  // namespace dbq::scalar
