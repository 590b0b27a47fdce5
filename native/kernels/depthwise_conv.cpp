// Depthwise convolution: every output reads one input channel. Lines of a channel are padded, split by the
// remainder of their columns by the stride, and interleaved with the line one tap below: a multiply-add of
// int16 pairs then serves two taps at once, exactly, whatever the weights.
#include <algorithm>
#include <cstring>
#include <numeric>

#include "lines.h"
#include "outputs.h"
#include "ranges.h"
#include "vector_ops.h"

namespace dbq {
namespace {

constexpr size_t BAND_BYTES = 16 * 1024;  // of interleaved lines: they stay in the L1 cache

class DepthwiseConv final : public Op {
public:
    DepthwiseConv(const ConvSpec& spec, const Simd& simd, int threads)
        : simd_(simd), outputs_(spec.outputs, spec.branches, largest_sum(spec)), spec_(without_weights(spec)),
          multiplier_(spec.out.channels / spec.in.channels), pair_lines_(ceil_div(spec.kernel_h, 2)),
          parts_(parts_for(spec.in.channels, threads)) {
        find_phases();
        choose_band();
        pack(spec);
    }

    int tasks() const override { return parts_; }
    size_t scratch_bytes() const override { return line_bytes() + pairs_bytes() + branch_bytes() * size_t(spec_.branches); }
    std::string kernel() const override { return std::string("depthwise ") + simd_.name; }
    size_t weight_bytes() const override { return weights_.size() * sizeof(int16_t); }

    void run(int task, const Planes* in, const Planes* out, unsigned char* scratch) const override {
        const Range channels = part(spec_.in.channels, parts_, task);
        auto pairs = reinterpret_cast<int16_t*>(scratch + line_bytes());
        auto sums = reinterpret_cast<int32_t*>(scratch + line_bytes() + pairs_bytes());
        std::memset(scratch, 0, line_bytes());
        for (int c = channels.begin; c < channels.end; ++c)
            for (int first = 0; first < spec_.out.height; first += band_) {
                const int height = std::min(band_, spec_.out.height - first), lines = input_lines(height);
                for (int i = 0; i < lines; ++i)
                    copy_phases(in[0].plane[c], first * spec_.stride_h + i - spec_.pad_top, scratch + size_t(i) * line_);
                interleave(scratch, lines, pairs);
                for (int m = 0; m < multiplier_; ++m) run_kernels(c * multiplier_ + m, first, height, pairs, sums, out);
            }
    }

private:
    struct Phase {
        int shift, begin, end;  // entry i is column i * stride + shift, inside the image for i in [begin, end)
    };

    static ConvSpec without_weights(ConvSpec spec) {
        spec.codes.clear();
        spec.outputs.clear();
        return spec;
    }

    void find_phases() {
        const int stride = spec_.stride_w, furthest = (spec_.kernel_w - 1) * spec_.dilation_w / stride;
        const int columns = spec_.out.width + furthest;
        // Room for the last vector of 8 sums to read on.
        pitch_ = round_up(size_t(columns) + 8, LANES);
        std::vector<int> remainders, column_of;
        for (int kx = 0; kx < spec_.kernel_w; ++kx) {
            const int remainder = kx * spec_.dilation_w % stride;
            const auto found = std::find(remainders.begin(), remainders.end(), remainder);
            column_of.push_back(int(found - remainders.begin()) * int(pitch_) + kx * spec_.dilation_w / stride);
            if (found != remainders.end()) continue;
            remainders.push_back(remainder);
            const int shift = remainder - spec_.pad_left;
            const int begin = shift < 0 ? std::min(ceil_div(-shift, stride), columns) : 0;
            const int end = spec_.in.width > shift ? std::min(ceil_div(spec_.in.width - shift, stride), columns) : 0;
            phases_.push_back({shift, begin, std::max(begin, end)});
        }
        line_ = phases_.size() * pitch_;
        for (int m = 0; m < pair_lines_; ++m)
            for (const int column : column_of) taps_.push_back(2 * m * spec_.dilation_h * int(line_) + column);
    }

    int input_lines(int height) const { return (height - 1) * spec_.stride_h + (spec_.kernel_h - 1) * spec_.dilation_h + 1; }

    // As many output lines as fit; whole vectors, so that the next band begins at a multiple of 16 pixels.
    void choose_band() {
        const int step = std::lcm(spec_.out.width, LANES) / spec_.out.width;
        band_ = step;
        while (band_ < spec_.out.height && size_t(input_lines(band_ + step)) * line_ * 4 <= BAND_BYTES) band_ += step;
        band_ = std::min(band_, spec_.out.height);
    }

    // Interleaving reads one tap below the last line, and whole vectors.
    size_t line_bytes() const {
        return round_up(size_t(input_lines(band_) + spec_.dilation_h) * line_ + LANES, PLANE_ALIGNMENT);
    }
    size_t pairs_bytes() const { return round_up(size_t(input_lines(band_)) * line_ * 4 + 64, PLANE_ALIGNMENT); }
    size_t branch_bytes() const {
        return round_up((size_t(band_) * size_t(spec_.out.width) + LANES) * sizeof(int32_t), PLANE_ALIGNMENT);
    }

    // weights[k][j][pair of lines][kx][2]; an odd last line is paired with zeros.
    void pack(const ConvSpec& spec) {
        const int kh = spec.kernel_h, kw = spec.kernel_w;
        for (int k = 0; k < spec.out.channels; ++k)
            for (int j = 0; j < spec.branches; ++j) {
                const int8_t* codes = &spec.codes[size_t(j * spec.out.channels + k) * size_t(kh * kw)];
                for (int m = 0; m < pair_lines_; ++m)
                    for (int kx = 0; kx < kw; ++kx) {
                        weights_.push_back(codes[2 * m * kw + kx]);
                        weights_.push_back(2 * m + 1 < kh ? codes[(2 * m + 1) * kw + kx] : int16_t(0));
                    }
            }
    }

    // Only what is inside the image: the padding was cleared before the first channel.
    void copy_phases(const unsigned char* plane, int y, unsigned char* to) const {
        const bool inside = y >= 0 && y < spec_.in.height;
        if (!inside && band_ == spec_.out.height) return;  // no other band has written this line
        const unsigned char* line = plane + ptrdiff_t(y) * spec_.in.width;
        const int stride = spec_.stride_w;
        for (const Phase& phase : phases_) {
            const size_t n = size_t(phase.end - phase.begin);
            unsigned char* const first = to + phase.begin;
            const ptrdiff_t column = phase.begin * stride + phase.shift;
            to += pitch_;
            if (n == 0) continue;
            if (!inside) std::memset(first, 0, n);
            else if (stride == 1) copy_line(first, line + column, n);
            else if (stride == 2) simd_.take_even(line + column, n, first);
            else for (size_t i = 0; i < n; ++i) first[i] = line[column + ptrdiff_t(i) * stride];
        }
    }

    void interleave(const unsigned char* lines, int count, int16_t* pairs) const {
        const bool is_signed = spec_.in_type == Type::I8;
        const size_t below = size_t(spec_.dilation_h) * line_;
        simd_.pair_rows(lines, lines + below, is_signed, size_t(count) * line_, pairs);
    }

    void run_kernels(int k, int first, int height, const int16_t* pairs, int32_t* sums, const Planes* out) const {
        Depthwise job;
        job.pairs = pairs;
        job.taps = taps_.data();
        job.count = int(taps_.size());
        job.line = spec_.stride_h * int(line_);
        job.height = height;
        job.width = spec_.out.width;
        Finish finish;
        finish.sums = sums;
        finish.stride = branch_bytes() / sizeof(int32_t);
        finish.channels = 1;
        finish.vectors = ceil_div(height * spec_.out.width, LANES);
        finish.pixel = size_t(first) * size_t(spec_.out.width);
        for (int j = 0; j < spec_.branches; ++j) {
            job.weights = weights_.data() + size_t(k * spec_.branches + j) * 2 * taps_.size();
            job.sums = sums + size_t(j) * finish.stride;
            simd_.depthwise(job);
        }
        outputs_.write(simd_.finish_i32, finish, k, out);
    }

    const Simd& simd_;
    const Outputs outputs_;
    const ConvSpec spec_;
    const int multiplier_, pair_lines_, parts_;
    int band_ = 0;
    size_t pitch_ = 0, line_ = 0;  // entries of a phase, and of all phases of a line
    std::vector<Phase> phases_;
    std::vector<int> taps_;
    std::vector<int16_t> weights_;
};

}  // namespace

std::unique_ptr<Op> make_depthwise_conv(const ConvSpec& spec, const Simd& simd, int threads) {
    return std::make_unique<DepthwiseConv>(spec, simd, threads);
}

}  // namespace dbq
