// Depthwise convolution: every output reads one input channel. A multiply-add of int16 pairs serves two taps
// at once, exactly, whatever the weights; so pairs are taps above each other: lines of the image are
// interleaved with the line one tap below, widened, padded, and split by the remainder of their columns by
// the stride. Without a vertical stride, the same pairs (line 2i, line 2i + 1) serve two lines of the output.
#include <algorithm>
#include <cstring>
#include <numeric>

#include "kernels/lines.h"
#include "kernels/vector/outputs.h"
#include "threads/stop.h"

namespace dbq::vec {
namespace {

constexpr size_t BAND_BYTES = 16 * 1024;  // of interleaved lines: they stay in the L1 cache

class DepthwiseConv final : public RangeOp {
public:
    DepthwiseConv(const ConvSpec& spec, const Simd& simd, int threads)
        : RangeOp(spec.in.channels, threads), simd_(simd), outputs_(spec), spec_(spec),
          multiplier_(spec.out.channels / spec.in.channels),
          lines_at_once_(spec.window.stride_h == 1 && spec.window.dilation_h == 1 ? 2 : 1),
          pair_lines_(ceil_div(spec.window.kernel_h + lines_at_once_ - 1, 2)),
          step_(std::gcd(lines_at_once_ * spec.window.stride_h, 2 * spec.window.dilation_h)) {
        find_phases();
        choose_band();
        plan_pieces();
        pack(spec);
    }

    size_t scratch_bytes() const override {
        return 3 * line_bytes() + pairs_bytes() + branch_bytes() * size_t(spec_.branches);
    }
    size_t weight_bytes() const override { return weights_.size() * sizeof(int16_t); }

private:
    struct Phase {
        // Entry i is column i * stride + shift, inside the image for i in [begin, end).
        int shift, begin, end;
    };
    // Pairs of lines that one call makes.
    struct Piece {
        depthwise::PairLines job;
        ptrdiff_t above = -1, below = -1;  // in the plane; negative: zeros
        size_t out = 0;
        bool copies = false;  // a line outside the image, or too close to the end of the plane
    };
    struct Lines {
        unsigned char *zeros, *above, *below;
    };

    void run_on(Range channels, const Planes* in, const Planes* out, unsigned char* scratch) const override {
        const Lines lines = {scratch, scratch + line_bytes(), scratch + 2 * line_bytes()};
        auto pairs = reinterpret_cast<int16_t*>(scratch + 3 * line_bytes());
        auto sums = reinterpret_cast<int32_t*>(scratch + 3 * line_bytes() + pairs_bytes());
        // Zeros outside the image; later only the inside is written.
        std::memset(scratch, 0, 3 * line_bytes() + pairs_bytes());
        for (int c = channels.begin; c < channels.end; ++c)
            for (int first = 0; first < spec_.out.height; first += band_) {
                if (stopped()) return;
                const int height = std::min(band_, spec_.out.height - first);
                for (const Piece& piece : pieces_[size_t(first / band_)])
                    interleave(in[0].plane[c], piece, lines, pairs);
                for (int m = 0; m < multiplier_; ++m)
                    run_kernels(c * multiplier_ + m, first, height, pairs, sums, out);
            }
    }

    void find_phases() {
        const int stride = window_.stride_w;
        columns_ = spec_.out.width + (window_.kernel_w - 1) * window_.dilation_w / stride;
        // Room for whole vectors.
        pitch_ = round_up(size_t(columns_) + simd_.lanes, simd_.lanes);
        std::vector<int> remainders, column_of;
        for (int kx = 0; kx < window_.kernel_w; ++kx) {
            const int remainder = kx * window_.dilation_w % stride;
            const auto found = std::find(remainders.begin(), remainders.end(), remainder);
            column_of.push_back(int(found - remainders.begin()) * int(pitch_) +
                                kx * window_.dilation_w / stride);
            if (found != remainders.end()) continue;
            remainders.push_back(remainder);
            const int shift = remainder - window_.pad_left;
            const int begin = shift < 0 ? std::min(ceil_div(-shift, stride), columns_) : 0;
            const int end =
                spec_.in.width > shift ? std::min(ceil_div(spec_.in.width - shift, stride), columns_) : 0;
            phases_.push_back({shift, begin, std::max(begin, end)});
        }
        line_ = phases_.size() * pitch_;
        for (int m = 0; m < pair_lines_; ++m)
            for (const int column : column_of) taps_.push_back(pair_line_at(0, m) * int(line_) + column);
    }

    // Pair i of a band is made of its input lines i * step_ and i * step_ + dilation. Output line y reads as
    // its pair of taps number m:
    int pair_line_at(int y, int m) const {
        return (y / lines_at_once_ * lines_at_once_ * window_.stride_h + 2 * m * window_.dilation_h) / step_;
    }
    int pair_lines_in(int height) const { return pair_line_at(height - 1, pair_lines_ - 1) + 1; }

    // As many output lines as fit; whole vectors, so that the next band begins with a whole vector,
    // and an even number, so that it begins with a first line of two.
    void choose_band() {
        const int step = std::lcm(std::lcm(spec_.out.width, simd_.lanes) / spec_.out.width, 2);
        band_ = step;
        while (band_ < spec_.out.height && size_t(pair_lines_in(band_ + step)) * line_ * 4 <= BAND_BYTES)
            band_ += step;
        band_ = std::min(band_, spec_.out.height);
    }

    // An input line, or one of its phases, and the slack that vectors read behind it.
    size_t line_bytes() const {
        return aligned(std::max(size_t(spec_.in.width), pitch_ * 2) + 4 * simd_.lanes);
    }
    size_t pairs_bytes() const { return aligned(size_t(pair_lines_in(band_)) * line_ * 4); }
    size_t branch_bytes() const {
        return aligned((size_t(band_) * size_t(spec_.out.width) + simd_.lanes) * sizeof(int32_t));
    }

    // weights[k][j][line of two][pair of taps][kx][2]; the second line begins one tap later in its pairs.
    void pack(const ConvSpec& spec) {
        const int kh = spec.window.kernel_h, kw = spec.window.kernel_w;
        for (int k = 0; k < spec.out.channels; ++k)
            for (int j = 0; j < spec.branches; ++j) {
                const int8_t* codes = spec.kernel(j, k);
                const auto code = [&](int ky, int kx) {
                    return ky >= 0 && ky < kh ? codes[ky * kw + kx] : int8_t(0);
                };
                for (int late = 0; late < lines_at_once_; ++late)
                    for (int m = 0; m < pair_lines_; ++m)
                        for (int kx = 0; kx < kw; ++kx) {
                            weights_.push_back(code(2 * m - late, kx));
                            weights_.push_back(code(2 * m + 1 - late, kx));
                        }
            }
    }

    // Whether all vectors of a line can be read from the plane itself.
    bool readable(int y, const Phase& phase) const {
        if (window_.stride_w > 2 || y < 0 || y >= spec_.in.height) return false;
        const size_t bytes =
            size_t(window_.stride_w) * round_up(size_t(phase.end - phase.begin), simd_.lanes);
        return size_t(position(y, phase)) + bytes <=
               plane_bytes(Type::U8, spec_.in.pixels(), size_t(simd_.lanes));
    }
    // The position of a line's first code in its plane; negative outside the image.
    ptrdiff_t position(int y, const Phase& phase) const {
        if (y < 0 || y >= spec_.in.height) return -1;
        return ptrdiff_t(y) * spec_.in.width + phase.begin * window_.stride_w + phase.shift;
    }

    // How to make the pairs of every band: as few pieces as possible, planned once for all channels.
    void plan_pieces() {
        for (int first = 0; first < spec_.out.height; first += band_) {
            pieces_.emplace_back();
            const int top = first * window_.stride_h - window_.pad_top;
            const int count = pair_lines_in(std::min(band_, spec_.out.height - first));
            for (size_t p = 0; p < phases_.size(); ++p)
                for (int i = 0; i < count && phases_[p].begin < phases_[p].end;) {
                    const Piece piece = piece_at(top, i, count, p);
                    i += piece.job.lines;
                    // Pairs of two lines outside the image are zeros already, unless another band was there.
                    if (piece.above >= 0 || piece.below >= 0 || band_ < spec_.out.height)
                        pieces_.back().push_back(piece);
                }
        }
    }

    Piece piece_at(int top, int i, int count, size_t p) const {
        const Phase& phase = phases_[p];
        const auto is_readable = [&](int line) {
            const int y = top + line * step_;
            return readable(y, phase) && readable(y + window_.dilation_h, phase);
        };
        Piece piece;
        piece.above = position(top + i * step_, phase);
        piece.below = position(top + i * step_ + window_.dilation_h, phase);
        piece.out = 2 * (size_t(i) * line_ + p * pitch_ + size_t(phase.begin));
        piece.copies = !is_readable(i);
        piece.job.lines = 1;
        while (!piece.copies && i + piece.job.lines < count && is_readable(i + piece.job.lines))
            ++piece.job.lines;
        piece.job.n = phase.end - phase.begin;
        piece.job.zeros = columns_ - phase.end;
        piece.job.stride = window_.stride_w == 2 ? 2 : 1;
        piece.job.is_signed = spec_.in_type == Type::I8;
        piece.job.pitch = step_ * spec_.in.width;
        piece.job.out_pitch = int(line_);
        return piece;
    }

    const unsigned char* copied(const unsigned char* plane, ptrdiff_t position, size_t n, const Lines& lines,
                                unsigned char* copy) const {
        if (position < 0) return lines.zeros;
        const size_t stride = size_t(window_.stride_w);
        if (stride <= 2) copy_line(copy, plane + position, stride * (n - 1) + 1);
        else
            for (size_t i = 0; i < n; ++i) copy[i] = plane[size_t(position) + i * stride];
        return copy;
    }

    void interleave(const unsigned char* plane, const Piece& piece, const Lines& lines,
                    int16_t* pairs) const {
        depthwise::PairLines job = piece.job;
        job.above = plane + piece.above;
        job.below = plane + piece.below;
        job.out = pairs + piece.out;
        if (piece.copies) {
            job.above = copied(plane, piece.above, size_t(job.n), lines, lines.above);
            job.below = copied(plane, piece.below, size_t(job.n), lines, lines.below);
        }
        simd_.pair_lines(job);
    }

    void run_kernels(int k, int first, int height, const int16_t* pairs, int32_t* sums,
                     const Planes* out) const {
        const size_t weights = 2 * taps_.size();  // of one line
        depthwise::Lines job;
        job.pairs = pairs;
        job.taps = taps_.data();
        job.count = int(taps_.size());
        job.line = pair_line_at(lines_at_once_, 0) * int(line_);
        job.height = height;
        job.width = spec_.out.width;
        Finish finish;
        finish.sums = sums;
        finish.stride = branch_bytes() / sizeof(int32_t);
        finish.channels = 1;
        finish.vectors = ceil_div(height * spec_.out.width, simd_.lanes);
        finish.pixel = size_t(first) * size_t(spec_.out.width);
        for (int j = 0; j < spec_.branches; ++j) {
            job.weights = weights_.data() + size_t((k * spec_.branches + j) * lines_at_once_) * weights;
            job.next_weights = lines_at_once_ == 2 ? job.weights + weights : nullptr;
            job.sums = sums + size_t(j) * finish.stride;
            simd_.depthwise(job);
        }
        outputs_.write(simd_.finish_i32, finish, k, out);
    }

    const Simd& simd_;
    const Outputs outputs_;
    const ConvShape spec_;
    const Window& window_ = spec_.window;
    const int multiplier_, lines_at_once_, pair_lines_, step_;
    int band_ = 0, columns_ = 0;
    size_t pitch_ = 0, line_ = 0;  // entries of a phase, and of all phases of a line
    std::vector<Phase> phases_;
    std::vector<std::vector<Piece>> pieces_;  // for each band
    std::vector<int> taps_;
    std::vector<int16_t> weights_;
};

}  // namespace

std::unique_ptr<Op> make_depthwise_conv(const ConvSpec& spec, const Simd* simd, int threads) {
    return std::make_unique<DepthwiseConv>(spec, *simd, threads);
}

}  // namespace dbq::vec
