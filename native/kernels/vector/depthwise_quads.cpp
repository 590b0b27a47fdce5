// Depthwise convolution with 3x3 and 5x5 kernels to codes, on processors with a dot
// product.
#include "kernels/vector/outputs.h"

namespace dbq::vec {
namespace {

class DepthwiseQuads final : public Op {
public:
    DepthwiseQuads(const ConvSpec& spec, const Simd& simd, int threads)
        : simd_(simd), outputs_(spec.outputs), is_signed_(spec.in_type == Type::I8),
          channels_(spec.in.channels), height_(spec.out.height),
          cuts_lines_(cuts_pixels(spec.out.pixels(), threads) && spec.out.height >= threads),
          parts_(cuts_lines_ ? threads : parts_for(channels_, threads)) {
        pack(spec);
        depthwise::Quads job;
        job.kernel = spec.window.kernel_w;
        job.stride = spec.window.stride_w;
        job.multiplier = spec.out.channels / spec.in.channels;
        job.signed_in = is_signed_;
        job.pad_top = spec.window.pad_top;
        job.pad_left = spec.window.pad_left;
        job.in_height = spec.in.height;
        job.in_width = spec.in.width;
        job.out_width = spec.out.width;
        job.weights = weights_.data();
        job.start = start_.data();
        for (const Output& output : outputs_) {
            job.out = output.type;
            job.low = output.low;
            job.high = output.high;
            job.scale = output.scale.data();
            job.offset = output.offset.data();
            jobs_.push_back(job);
        }
    }

    int tasks() const override { return parts_; }
    size_t weight_bytes() const override { return (weights_.size() + start_.size()) * sizeof(int32_t); }

    // Sums are computed again for each output: that is faster than writing them down.
    void run(int task, const Planes* in, const Planes* out, unsigned char*) const override {
        const Range all = {0, channels_},
                    lines = cuts_lines_ ? part(height_, parts_, task) : Range{0, height_},
                    channels = cuts_lines_ ? all : part(channels_, parts_, task);
        for (size_t o = 0; o < jobs_.size(); ++o) {
            depthwise::Quads job = jobs_[o];
            job.line = lines.begin;
            job.end_line = lines.end;
            simd_.depthwise_quads(job, channels.begin, channels.end, in[0].plane, out[o].plane);
        }
    }

private:
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
            start_.push_back(is_signed_ ? -128 * sum : 0);
        }
    }

    const Simd& simd_;
    const std::vector<Output> outputs_;
    const bool is_signed_;
    const int channels_, height_;
    const bool cuts_lines_;
    const int parts_;
    std::vector<int32_t> weights_, start_;
    std::vector<depthwise::Quads> jobs_;  // for each output
};

}  // namespace

bool fits_depthwise_quads(const ConvSpec& s) {
    for (const Output& o : s.outputs) {
        const bool is_narrow = o.type == Type::I8 || o.type == Type::U8;
        if (o.type != Type::I32 && !(is_narrow && is_bounded(o, 1, s.largest_sum()))) return false;
    }
    const Window& w = s.window;
    return s.branches == 1 && w.kernel_h == w.kernel_w && (w.kernel_w == 3 || w.kernel_w == 5) &&
           w.dilation_h == 1 && w.dilation_w == 1 && w.stride_h == w.stride_w && w.stride_w <= 2;
}

std::unique_ptr<Op> make_depthwise_quads(const ConvSpec& spec, const Simd* simd, int threads) {
    return std::make_unique<DepthwiseQuads>(spec, *simd, threads);
}

}  // namespace dbq::vec
