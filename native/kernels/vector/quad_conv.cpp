// Convolution by products of bytes, four rows at a time, on processors that add four products to a sum at
// once. Sums stay in registers until they are codes.
//
// Codes are interleaved, four rows to a quad. If rows are input channels, tile by tile. Larger kernels have a
// quad of channels for each tap; interleaved once for each column of taps, a tap is some pixels further on.
// With few input channels quads of channels would be half empty: then taps are rows like channels.
#include <algorithm>
#include <array>
#include <cstring>
#include <numeric>

#include "kernels/vector/outputs.h"
#include "kernels/vector/rows.h"
#include "threads/stop.h"

namespace dbq::vec {
namespace {

// A task packs the codes of its pixels, so fewer channels do not pay for one more.
constexpr int LEAST_CHANNELS = 32;

int spans_for(const ConvSpec& spec, int threads) {
    return cuts_pixels(spec.out.pixels(), threads) ? threads : 1;
}

bool has_taps(const ConvSpec& spec, const Rows& rows, const Simd& simd) {
    return simd.quad_taps && !rows.is_direct() &&
           4 * spec.inputs() >= 3 * int(round_up(size_t(spec.inputs()), 4)) && spec.inputs() > 3;
}

class QuadConv final : public Op {
public:
    QuadConv(const ConvSpec& spec, const Simd& simd, int threads)
        : simd_(simd), rows_(spec, simd, spans_for(spec, threads)), outputs_(spec),
          is_signed_(spec.in_type == Type::I8), block_(simd.quad_block), groups_(spec.groups),
          outputs_in_group_(spec.outputs_in_group()), inputs_(spec.inputs()),
          area_(spec.window.kernel_h * spec.window.kernel_w), has_taps_(has_taps(spec, rows_, simd)),
          quads_(has_taps_ ? ceil_div(inputs_, 4) * area_ : ceil_div(rows_.count(), 4)) {
        pack(spec);
        if (has_taps_) find_taps(spec.window);
        if (has_taps_ && rows_.has_quads()) rows_.prepare_quads();
        if (simd.quad_window) cut_windows();
        const int channels = std::max(1, spec.out.channels / LEAST_CHANNELS);
        parts_ = std::min({ceil_div(threads, int(rows_.spans().size())), channels, groups_ * blocks()});
    }

    int tasks() const override { return int(rows_.spans().size()) * parts_; }
    size_t scratch_bytes() const override {
        if (has_taps_)
            return packed_bytes() + aligned(4 * rows_.copies() * rows_.longest_copy() + PLANE_ALIGNMENT);
        return tile_bytes() + rows_.scratch_bytes();
    }
    size_t weight_bytes() const override {
        return weights_.size() + taps_.size() * sizeof(uint32_t) +
               (start_.size() + shifts_.size()) * sizeof(int32_t) + windows_.size() * sizeof(uint16_t) +
               first_window_.size() * sizeof(uint32_t);
    }

    void run(int task, const Planes* in, const Planes* out, unsigned char* scratch) const override {
        run_units(rows_.spans()[size_t(task / parts_)], part(groups_ * blocks(), parts_, task % parts_), in,
                  out, scratch);
    }
    void run_all(const Planes* in, const Planes* out, unsigned char* scratch) const override {
        for (const Span& span : rows_.spans()) run_units(span, {0, groups_ * blocks()}, in, out, scratch);
    }

private:
    void run_units(Span span, Range units, const Planes* in, const Planes* out,
                   unsigned char* scratch) const {
        const int total = ceil_div(int(span.pixels), simd_.quad_lanes);
        std::vector<Finish> finishes(outputs_.size());
        quads::Job job;
        job.codes = scratch;
        job.taps = has_taps_ ? taps_.data() : nullptr;
        job.groups = quads_;
        job.outputs = finishes.data();
        job.output_count = int(finishes.size());
        for (int unit = units.begin; unit < units.end;) {
            const int group = unit / blocks(), end = std::min(units.end, (group + 1) * blocks());
            const uint8_t* const* rows = nullptr;
            if (has_taps_) pack_copies(in[0], group, span, scratch);
            else rows = rows_.gather(in[0], group, span, scratch + tile_bytes());
            choose_channels(group, {unit % blocks(), end - group * blocks()}, out, finishes, job);
            for (int vector = 0; vector < total; vector += simd_.quad_vectors) {
                if (stopped()) return;
                job.vectors = std::min(simd_.quad_vectors, total - vector);
                const size_t pixel = size_t(vector) * size_t(simd_.quad_lanes);
                job.half =
                    int(span.pixels) <= (vector + job.vectors) * simd_.quad_lanes - simd_.quad_lanes / 2;
                if (has_taps_) job.codes = scratch + 4 * pixel;
                else simd_.pack_quads(rows, rows_.count(), is_signed_, pixel, job.vectors, scratch);
                for (Finish& finish : finishes) finish.pixel = span.pixel + pixel;
                simd_.multiply_quads(job);
            }
            unit = end;
        }
    }

    int blocks() const { return ceil_div(outputs_in_group_, block_); }  // of a group
    size_t tile_bytes() const {
        return aligned(size_t(quads_) * 4 * size_t(simd_.quad_vectors) * size_t(simd_.quad_lanes));
    }
    // Of an interleaved copy; tiles may read beyond its end. All of them come first in the scratch memory.
    size_t copy_bytes() const {
        return 4 *
               (round_up(rows_.longest_copy(), 64) + size_t(simd_.quad_vectors) * size_t(simd_.quad_lanes));
    }
    size_t packed_bytes() const {
        return aligned(size_t(ceil_div(inputs_, 4)) * rows_.copies() * copy_bytes());
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
        job.shifts = shifts_.data() + block * size_t(block_);
        job.channels = std::min(range.end * block_, outputs_in_group_) - first;
        for (size_t o = 0; o < finishes.size(); ++o)
            outputs_.describe(o, group * outputs_in_group_ + first, out, finishes[o]);
    }

    void find_taps(const Window& window) {
        for (int quad = 0; quad < ceil_div(inputs_, 4); ++quad)
            for (int ky = 0; ky < window.kernel_h; ++ky)
                for (int kx = 0; kx < window.kernel_w; ++kx) {
                    const Rows::Tap tap = rows_.tap(ky, kx);
                    const size_t copy = size_t(quad) * rows_.copies() + tap.copy;
                    taps_.push_back(uint32_t(copy * copy_bytes() + 4 * tap.pixel));
                }
    }

    void pack_copies(const Planes& in, int group, Span span, unsigned char* scratch) const {
        unsigned char* const copies = scratch + packed_bytes();
        const size_t pixels = rows_.copy_pixels(span), step = size_t(simd_.quad_vectors * simd_.quad_lanes);
        for (int first = 0; first < inputs_; first += 4) {
            const int count = std::min(4, inputs_ - first);
            if (rows_.has_quads()) {
                rows_.copy_quads(in.plane + group * inputs_ + first, count, span, copy_bytes(),
                                 scratch + size_t(first / 4) * rows_.copies() * copy_bytes());
                continue;
            }
            for (int i = 0; i < count; ++i)
                rows_.copy_channel(in.plane[group * inputs_ + first + i], span,
                                   copies + size_t(i) * rows_.copies() * pixels);
            for (size_t copy = 0; copy < rows_.copies(); ++copy) {
                const uint8_t* rows[4];
                for (int i = 0; i < count; ++i)
                    rows[i] = copies + (size_t(i) * rows_.copies() + copy) * pixels;
                uint8_t* const to = scratch + (size_t(first / 4) * rows_.copies() + copy) * copy_bytes();
                for (size_t pixel = 0; pixel < pixels; pixel += step) {
                    const int left = ceil_div(int(pixels - pixel), simd_.quad_lanes);
                    simd_.pack_quads(rows, count, is_signed_, pixel, std::min(simd_.quad_vectors, left),
                                     to + 4 * pixel);
                }
            }
        }
    }

    // Four weights of a kernel that belong together.
    std::array<int8_t, 4> quad_of(const int8_t* codes, int quad) const {
        std::array<int8_t, 4> four{};
        for (int i = 0; i < 4; ++i) {
            const int channel = quad / area_ * 4 + i, row = quad * 4 + i;
            if (has_taps_ && channel < inputs_) four[size_t(i)] = codes[channel * area_ + quad % area_];
            if (!has_taps_ && row < rows_.count()) four[size_t(i)] = codes[row];
        }
        return four;
    }

    void pack(const ConvSpec& spec) {
        const size_t taps = size_t(rows_.count());
        weights_.resize(size_t(groups_ * blocks()) * block_bytes());
        start_.resize(size_t(groups_ * blocks() * block_));
        shifts_.resize(start_.size());
        for (int k = 0; k < spec.out.channels; ++k) {
            const int8_t* const codes = spec.kernel(0, k);
            const int in_group = k % outputs_in_group_, lane = in_group % block_;
            const size_t block = size_t(k / outputs_in_group_ * blocks() + in_group / block_);
            const int8_t shift = simd_.quad_shifts
                                     ? int8_t(-std::min(int8_t(0), *std::min_element(codes, codes + taps)))
                                     : int8_t(0);
            int8_t* to = weights_.data() + block * block_bytes() + size_t(lane) * 4;
            for (int quad = 0; quad < quads_; ++quad, to += 4 * block_) {
                const std::array<int8_t, 4> four = quad_of(codes, quad);
                for (size_t i = 0; i < 4; ++i) to[i] = int8_t(four[i] + shift);
            }
            shifts_[block * size_t(block_) + size_t(lane)] = shift;
            const int32_t sum = std::accumulate(codes, codes + taps, 0);
            start_[block * size_t(block_) + size_t(lane)] =
                (simd_.quad_offset - (is_signed_ ? 128 : 0)) * sum;
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
    Rows rows_;
    const Outputs outputs_;
    const bool is_signed_;
    const int block_, groups_, outputs_in_group_, inputs_, area_;
    const bool has_taps_;
    const int quads_;
    std::vector<uint32_t> taps_;
    int parts_ = 1;
    std::vector<int8_t> weights_;
    std::vector<int32_t> start_, shifts_;
    std::vector<uint16_t> windows_;
    std::vector<uint32_t> first_window_;
};

}  // namespace

std::unique_ptr<Op> make_quad_conv(const ConvSpec& spec, const Simd* simd, int threads) {
    return std::make_unique<QuadConv>(spec, *simd, threads);
}

}  // namespace dbq::vec
