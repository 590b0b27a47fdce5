// Convolution with very few output pixels, such as linear layers: lanes along the inputs instead of pixels.
#include <algorithm>
#include <cstring>

#include "kernels/formula.h"
#include "kernels/vector/outputs.h"

namespace dbq::vec {
namespace {

constexpr int BLOCK = 16;  // channels whose weights are read once for all pixels

class DotConv final : public RangeOp {
public:
    DotConv(const ConvSpec& spec, const Simd& simd, int threads)
        : RangeOp(spec.out.channels, threads), simd_(simd), outputs_(spec), spec_(spec),
          padded_(round_up(size_t(spec.taps()), size_t(simd.lanes))) {
        // weights[k][j][tap], zeros up to the next multiple of the vector length.
        weights_.resize(size_t(spec.out.channels * spec.branches) * padded_);
        for (int k = 0; k < spec.out.channels; ++k)
            for (int j = 0; j < spec.branches; ++j)
                std::memcpy(&weights_[size_t(k * spec.branches + j) * padded_], spec.kernel(j, k),
                            size_t(spec.taps()));
    }

    size_t scratch_bytes() const override { return aligned(spec_.out.pixels() * padded_ * sizeof(int16_t)); }
    size_t weight_bytes() const override { return weights_.size(); }

private:
    void run_on(Range channels, const Planes* in, const Planes* out, unsigned char* scratch) const override {
        const int per_group = spec_.outputs_in_group(), pixels = int(spec_.out.pixels());
        auto codes = reinterpret_cast<int16_t*>(scratch);
        for (int k = channels.begin, gathered = -1; k < channels.end;) {
            const int group = k / per_group,
                      end = std::min({k + BLOCK, channels.end, (group + 1) * per_group});
            if (group != gathered) {
                for (int p = 0; p < pixels; ++p) gather(in[0], group, p, codes + size_t(p) * padded_);
                gathered = group;
            }
            for (int p = 0; p < pixels; ++p) {
                int32_t sums[BLOCK * 3];
                simd_.dots(codes + size_t(p) * padded_, &weights_[size_t(k * spec_.branches) * padded_],
                           padded_, (end - k) * spec_.branches, sums);
                for (int i = k; i < end; ++i)
                    outputs_.write_element(sums + (i - k) * spec_.branches, i, out, size_t(p));
            }
            k = end;
        }
    }

    // All codes under the kernel at one output pixel, in the order of the weights.
    void gather(const Planes& in, int group, int pixel, int16_t* codes) const {
        const ConvShape& s = spec_;
        const int inputs = s.inputs();
        const int top = pixel / s.out.width * s.window.stride_h - s.window.pad_top,
                  left = pixel % s.out.width * s.window.stride_w - s.window.pad_left;
        int16_t* to = codes;
        for (int c = group * inputs; c < (group + 1) * inputs; ++c)
            for (int ky = 0; ky < s.window.kernel_h; ++ky)
                for (int kx = 0; kx < s.window.kernel_w; ++kx) {
                    const int y = top + ky * s.window.dilation_h, x = left + kx * s.window.dilation_w;
                    const bool inside = y >= 0 && y < s.in.height && x >= 0 && x < s.in.width;
                    *to++ =
                        inside ? int16_t(read_code(s.in_type, in.plane[c], s.in.pixel(y, x))) : int16_t(0);
                }
        std::fill(to, codes + padded_, int16_t(0));
    }

    const Simd& simd_;
    const Outputs outputs_;
    const ConvShape spec_;
    const size_t padded_;  // taps
    std::vector<int8_t> weights_;
};

}  // namespace

std::unique_ptr<Op> make_dot_conv(const ConvSpec& spec, const Simd* simd, int threads) {
    return std::make_unique<DotConv>(spec, *simd, threads);
}

}  // namespace dbq::vec
