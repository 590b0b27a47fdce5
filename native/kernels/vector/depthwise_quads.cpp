// Depthwise convolution with 3x3 and 5x5 kernels to one tensor of codes, on processors with a dot
// product.
#include "kernels/vector/outputs.h"

namespace dbq::vec {
namespace {

class DepthwiseQuads final : public RangeOp {
public:
    DepthwiseQuads(const ConvSpec& spec, const Simd& simd, int threads)
        : RangeOp(spec.in.channels, threads), simd_(simd), output_(spec.outputs[0]) {
        job_.kernel = spec.window.kernel_w;
        job_.stride = spec.window.stride_w;
        job_.multiplier = spec.out.channels / spec.in.channels;
        job_.signed_in = spec.in_type == Type::I8;
        job_.out = output_.type;
        job_.pad_top = spec.window.pad_top;
        job_.pad_left = spec.window.pad_left;
        job_.in_height = spec.in.height;
        job_.in_width = spec.in.width;
        job_.out_height = spec.out.height;
        job_.out_width = spec.out.width;
        job_.low = output_.low;
        job_.high = output_.high;
        pack(spec);
        job_.weights = weights_.data();
        job_.start = start_.data();
        job_.scale = output_.scale.data();
        job_.offset = output_.offset.data();
    }

    size_t weight_bytes() const override { return (weights_.size() + start_.size()) * sizeof(int32_t); }

private:
    void run_on(Range channels, const Planes* in, const Planes* out, unsigned char*) const override {
        simd_.depthwise_quads(job_, channels.begin, channels.end, in[0].plane, out[0].plane);
    }

    void pack(const ConvSpec& spec) {
        const int size = spec.window.kernel_w;
        for (int k = 0; k < spec.out.channels; ++k) {
            const int8_t* const codes = spec.kernel(0, k);
            int32_t sum = 0;
            for (int y = 0; y < size; ++y)
                for (int x = 0; x < size; x += 4) {
                    uint32_t four = 0;
                    for (int i = 0; i < 4 && x + i < size; ++i) {
                        four |= uint32_t(uint8_t(codes[y * size + x + i])) << (8 * i);
                        sum += codes[y * size + x + i];
                    }
                    weights_.push_back(int32_t(four));
                }
            start_.push_back(job_.signed_in ? -128 * sum : 0);
        }
    }

    const Simd& simd_;
    const Output output_;
    depthwise::Quads job_;
    std::vector<int32_t> weights_, start_;
};

}  // namespace

bool fits_depthwise_quads(const ConvSpec& s) {
    if (s.branches != 1 || s.outputs.size() != 1) return false;
    const Output& o = s.outputs[0];
    const Window& w = s.window;
    const bool is_narrow = o.type == Type::I8 || o.type == Type::U8;
    return (o.type == Type::I32 || (is_narrow && is_bounded(o, 1, s.largest_sum()))) &&
           w.kernel_h == w.kernel_w && (w.kernel_w == 3 || w.kernel_w == 5) && w.dilation_h == 1 &&
           w.dilation_w == 1 && w.stride_h == w.stride_w && w.stride_w <= 2;
}

std::unique_ptr<Op> make_depthwise_quads(const ConvSpec& spec, const Simd* simd, int threads) {
    return std::make_unique<DepthwiseQuads>(spec, *simd, threads);
}

}  // namespace dbq::vec
