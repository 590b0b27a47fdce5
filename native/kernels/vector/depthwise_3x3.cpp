// Depthwise convolution with 3x3 kernels from 8-bit codes to 8-bit codes, stride 1 or 2: the usual case.
#include <cmath>

#include "kernels/vector/outputs.h"

namespace dbq::vec {
namespace {

constexpr int FLAT_BYTES = 4 * 1024;   // of outputs before they are copied to their plane
constexpr int BATCH_BYTES = 8 * 1024;  // of padded planes

class DepthwiseConv3x3 final : public RangeOp {
public:
    DepthwiseConv3x3(const ConvSpec& spec, const Simd& simd, int threads)
        : RangeOp(spec.in.channels, threads), simd_(simd), output_(spec.outputs[0]) {
        describe_planes(spec);
        pack(spec);
        job_.weights = weights_.data();
        job_.scale = output_.scale.data();
        job_.offset = output_.offset.data();
        job_.lowest = int16_t(std::nearbyint(output_.low));
        job_.highest = int16_t(std::nearbyint(output_.high));
    }

    size_t scratch_bytes() const override {
        return size_t(job_.batch) * size_t(job_.padded_bytes + job_.flat_bytes);
    }
    size_t weight_bytes() const override { return weights_.size() * sizeof(int16_t); }

private:
    void run_on(Range channels, const Planes* in, const Planes* out, unsigned char* scratch) const override {
        simd_.depthwise_3x3(job_, channels.begin, channels.end, in[0].plane, out[0].plane, scratch);
    }

    // Lines of a plane whose vectors do not leave it.
    int lines_inside(Shape shape, int columns) const {
        const size_t bytes = plane_bytes(Type::U8, shape.pixels(), size_t(simd_.lanes));
        int y = 0;
        while (y < shape.height &&
               shape.pixel(y, 0) + round_up(size_t(columns), size_t(simd_.lanes)) <= bytes)
            ++y;
        return y;
    }

    void describe_planes(const ConvSpec& spec) {
        const int vector = 2 * simd_.lanes;  // bytes
        const int stride = spec.window.stride_w, out_h = spec.out.height, out_w = spec.out.width;
        job_.stride = stride;
        job_.multiplier = spec.out.channels / spec.in.channels;
        job_.signed_in = spec.in_type == Type::I8;
        job_.signed_out = output_.type == Type::I8;
        job_.pad_top = spec.window.pad_top;
        job_.pad_left = spec.window.pad_left;
        job_.in_width = spec.in.width;
        job_.out_width = out_w;
        job_.out_height = out_h;
        // With a stride of 2, even lines come first, then odd lines, and lines have even lengths: then every
        // second position is an output, here too.
        job_.line = int(round_up(size_t((out_w - 1) * stride + 3), size_t(stride)));
        job_.out_line = job_.line / stride;
        job_.odd_lines = (out_h + 1) * job_.line + vector;
        const int lines = (out_h - 1) * stride + 3;
        job_.copied_columns = std::max(0, std::min(spec.in.width, job_.line - spec.window.pad_left));
        job_.copied_lines =
            job_.copied_columns ? std::max(0, std::min(spec.in.height, lines - spec.window.pad_top)) : 0;
        job_.readable_lines = lines_inside(spec.in, job_.copied_columns);
        job_.writable_lines = lines_inside(spec.out, out_w);
        // Behind the last line, less than one vector is written and less than three are read.
        const int padded_lines = stride == 1 ? lines : 2 * out_h + 1;
        job_.padded_bytes = int(aligned(size_t(padded_lines * job_.line + 5 * vector)));
        job_.band = std::min(out_h, std::max(1, FLAT_BYTES / job_.out_line));
        job_.batch =
            job_.band < out_h ? 1 : std::max(1, std::min(spec.in.channels, BATCH_BYTES / job_.padded_bytes));
        job_.flat_bytes = int(aligned(size_t(job_.band * job_.out_line + vector)));
    }

    // weights[k]: the low parts of five pairs, their high parts, a correction for signed codes, 128 larger.
    void pack(const ConvSpec& spec) {
        weights_.reserve(size_t(spec.out.channels) * depthwise::WEIGHTS_3X3);
        for (int k = 0; k < spec.out.channels; ++k) {
            const int8_t* w = spec.kernel(0, k);
            const int pairs[5][2] = {{w[0], w[1]}, {w[3], w[4]}, {w[6], w[7]}, {w[2], w[5]}, {w[8], 0}};
            const auto low = [](int v) { return ((v + 8) & 15) - 8; };
            const auto high = [&](int v) { return (v - low(v)) / 16; };
            const auto bytes = [](int a, int b) { return int16_t(uint16_t((a & 0xff) | (b & 0xff) << 8)); };
            for (const auto& p : pairs) weights_.push_back(bytes(low(p[0]), low(p[1])));
            for (const auto& p : pairs) weights_.push_back(bytes(high(p[0]), high(p[1])));
            int sum = 0;
            for (int t = 0; t < 9; ++t) sum += w[t];
            weights_.push_back(int16_t(-128 / 16 * sum));
        }
    }

    const Simd& simd_;
    const Output output_;
    depthwise::Planes3x3 job_;
    std::vector<int16_t> weights_;
};

}  // namespace

bool fits_depthwise_3x3(const ConvSpec& s) {
    if (s.branches != 1 || s.outputs.size() != 1) return false;
    const Output& o = s.outputs[0];
    if (o.type != Type::I8 && (o.type != Type::U8 || o.low != 0)) return false;
    const int largest_plane = 1 << 24;
    return s.window.kernel_h == 3 && s.window.kernel_w == 3 && s.window.dilation_h == 1 &&
           s.window.dilation_w == 1 && s.window.stride_h == s.window.stride_w && s.window.stride_w <= 2 &&
           s.window.pad_top < 3 && s.window.pad_left < 3 && s.out.height < 4096 && s.out.width < 4096 &&
           s.in.pixels() < largest_plane && is_bounded(o, 1, s.largest_sum());
}

std::unique_ptr<Op> make_depthwise_3x3(const ConvSpec& spec, const Simd* simd, int threads) {
    return std::make_unique<DepthwiseConv3x3>(spec, *simd, threads);
}

}  // namespace dbq::vec
