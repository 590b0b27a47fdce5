// Convolution by products of bytes, four rows at a time, on processors that add four products to a sum at
// once. Sums stay in registers until they are codes.
#include <algorithm>
#include <cstring>
#include <numeric>

#include "kernels/vector/outputs.h"
#include "kernels/vector/rows.h"
#include "threads/stop.h"

namespace dbq::vec {
namespace {

// A task packs the codes of its pixels, so fewer channels do not pay for one more; and fewer pixels leave
// registers empty. A fixed share of the lines for each thread keeps them in its cache from layer to layer.
constexpr int LEAST_CHANNELS = 64, LEAST_PIXELS = 64;

int spans_for(const ConvSpec& spec, int threads) {
    return std::clamp(int(spec.out.pixels()) / LEAST_PIXELS, 1, std::max(1, threads));
}

class QuadConv final : public Op {
public:
    QuadConv(const ConvSpec& spec, const Simd& simd, int threads)
        : simd_(simd), rows_(spec, simd, spans_for(spec, threads)), outputs_(spec),
          is_signed_(spec.in_type == Type::I8), block_(simd.quad_block), groups_(spec.groups),
          outputs_in_group_(spec.outputs_in_group()), quads_(ceil_div(rows_.count(), 4)) {
        pack(spec);
        if (simd.quad_window) cut_windows();
        const int channels = std::max(1, spec.out.channels / LEAST_CHANNELS);
        parts_ = std::min({ceil_div(threads, int(rows_.spans().size())), channels, groups_ * blocks()});
    }

    int tasks() const override { return int(rows_.spans().size()) * parts_; }
    size_t scratch_bytes() const override { return tile_bytes() + rows_.scratch_bytes(); }
    size_t weight_bytes() const override {
        return weights_.size() + start_.size() * sizeof(int32_t) + windows_.size() * sizeof(uint16_t) +
               first_window_.size() * sizeof(uint32_t);
    }

    void run(int task, const Planes* in, const Planes* out, unsigned char* scratch) const override {
        const Span span = rows_.spans()[size_t(task / parts_)];
        const Range units = part(groups_ * blocks(), parts_, task % parts_);
        const int total = ceil_div(int(span.pixels), simd_.quad_lanes);
        std::vector<Finish> finishes(outputs_.size());
        quads::Job job;
        job.codes = scratch;
        job.groups = quads_;
        job.outputs = finishes.data();
        job.output_count = int(finishes.size());
        for (int unit = units.begin; unit < units.end;) {
            const int group = unit / blocks(), end = std::min(units.end, (group + 1) * blocks());
            const uint8_t* const* rows = rows_.gather(in[0], group, span, scratch + tile_bytes());
            choose_channels(group, {unit % blocks(), end - group * blocks()}, out, finishes, job);
            for (int vector = 0; vector < total; vector += simd_.quad_vectors) {
                if (stopped()) return;
                job.vectors = std::min(simd_.quad_vectors, total - vector);
                const size_t pixel = size_t(vector) * size_t(simd_.quad_lanes);
                job.half =
                    int(span.pixels) <= (vector + job.vectors) * simd_.quad_lanes - simd_.quad_lanes / 2;
                simd_.pack_quads(rows, rows_.count(), is_signed_, pixel, job.vectors, scratch);
                for (Finish& finish : finishes) finish.pixel = span.pixel + pixel;
                simd_.multiply_quads(job);
            }
            unit = end;
        }
    }

private:
    int blocks() const { return ceil_div(outputs_in_group_, block_); }  // of a group
    size_t tile_bytes() const {
        return aligned(size_t(quads_) * 4 * size_t(simd_.quad_vectors) * size_t(simd_.quad_lanes));
    }
    size_t block_bytes() const { return size_t(quads_) * 4 * size_t(block_); }

    // Some blocks of a group: what of the job depends on them.
    void choose_channels(int group, Range range, const Planes* out, std::vector<Finish>& finishes,
                         quads::Job& job) const {
        const int first = range.begin * block_;
        const size_t block = size_t(group * blocks() + range.begin);
        job.weights = weights_.data() + block * block_bytes();
        job.windows = windows_.data();
        job.first_window = first_window_.data() + block;
        job.start = start_.data() + block * size_t(block_);
        job.channels = std::min(range.end * block_, outputs_in_group_) - first;
        for (size_t o = 0; o < finishes.size(); ++o)
            outputs_.describe(o, group * outputs_in_group_ + first, out, finishes[o]);
    }

    void pack(const ConvSpec& spec) {
        const size_t taps = size_t(rows_.count());
        weights_.resize(size_t(groups_ * blocks()) * block_bytes());
        start_.resize(size_t(groups_ * blocks() * block_));
        for (int k = 0; k < spec.out.channels; ++k) {
            const int8_t* const codes = spec.kernel(0, k);
            const int in_group = k % outputs_in_group_, lane = in_group % block_;
            const size_t block = size_t(k / outputs_in_group_ * blocks() + in_group / block_);
            int8_t* to = weights_.data() + block * block_bytes() + size_t(lane) * 4;
            size_t d = 0;
            for (; d + 4 <= taps; d += 4, to += 4 * block_) std::memcpy(to, codes + d, 4);
            if (d < taps) std::memcpy(to, codes + d, taps - d);
            const int32_t sum = std::accumulate(codes, codes + taps, 0);
            start_[block * size_t(block_) + size_t(lane)] = is_signed_ ? -128 * sum : 0;
        }
    }

    // The longest windows of each block in which no sum of 16 bits can overflow, whatever the codes.
    void cut_windows() {
        const size_t blocks = weights_.size() / block_bytes(), pairs = size_t(block_) * 2;
        std::vector<int> positive(pairs), negative(pairs);
        for (size_t block = 0; block < blocks; ++block) {
            first_window_.push_back(uint32_t(windows_.size()));
            windows_.push_back(0);
            std::fill(positive.begin(), positive.end(), 0);
            std::fill(negative.begin(), negative.end(), 0);
            for (int group = 0; group < quads_; ++group) {
                const int8_t* const four =
                    weights_.data() + block * block_bytes() + size_t(group * block_) * 4;
                const auto count = [&] {
                    bool fits = true;
                    for (size_t i = 0; i < 2 * pairs; ++i) {
                        positive[i / 2] += std::max(0, int(four[i]));
                        negative[i / 2] -= std::min(0, int(four[i]));
                        fits &= positive[i / 2] <= simd_.quad_window && negative[i / 2] <= simd_.quad_window;
                    }
                    return fits;
                };
                if (!count() || windows_.back() == UINT16_MAX) {
                    windows_.push_back(0);
                    std::fill(positive.begin(), positive.end(), 0);
                    std::fill(negative.begin(), negative.end(), 0);
                    count();
                }
                ++windows_.back();
            }
        }
    }

    const Simd& simd_;
    const Rows rows_;
    const Outputs outputs_;
    const bool is_signed_;
    const int block_, groups_, outputs_in_group_, quads_;
    int parts_ = 1;
    std::vector<int8_t> weights_;
    std::vector<int32_t> start_;
    std::vector<uint16_t> windows_;
    std::vector<uint32_t> first_window_;
};

}  // namespace

std::unique_ptr<Op> make_quad_conv(const ConvSpec& spec, const Simd* simd, int threads) {
    return std::make_unique<QuadConv>(spec, *simd, threads);
}

}  // namespace dbq::vec
