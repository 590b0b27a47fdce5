// One ternary branch of many outputs on processors that look up 32 words with one instruction: vectors are
// along the outputs, so that small images leave no lanes empty. See `shuffles` in simd.h.
#include <algorithm>
#include <cstring>
#include <numeric>

#include "kernels/vector/outputs.h"
#include "kernels/vector/rows.h"
#include "threads/stop.h"

namespace dbq::vec {
namespace {

using shuffles::GROUP;
using shuffles::SHUFFLED;
using shuffles::STEP;
using shuffles::STEP_BYTES;

constexpr int TILE = 64;  // pixels that are interleaved at once
// Tables of a longer window leave the L1 cache, sums of shorter ones go to memory more often: 9, 16, 22 and
// 29 were measured, and from 16 on differ by 3 %.
constexpr int WINDOW_STEPS = 29;
constexpr int MOST_SIGNS = 128;  // of equal weights in a window: 255 * 128 < 2^15

struct alignas(64) Line {
    unsigned char bytes[64] = {};
};

class ShuffleConv final : public Op {
public:
    ShuffleConv(const ConvSpec& spec, const Simd& simd, int threads)
        : simd_(simd), rows_(spec, simd, cuts_pixels(spec.out.pixels(), threads) ? threads : 1),
          outputs_(spec), is_signed_(spec.in_type == Type::I8), channels_(spec.out.channels),
          groups_(ceil_div(channels_, GROUP)), steps_(ceil_div(rows_.count(), STEP)) {
        parts_ = std::min(ceil_div(threads, int(rows_.spans().size())), groups_);
        cut_windows(spec);
        pack(spec);
    }

    int tasks() const override { return int(rows_.spans().size()) * parts_; }
    size_t scratch_bytes() const override { return at_rows() + rows_.scratch_bytes(); }
    size_t weight_bytes() const override {
        return weights_.size() * sizeof(Line) + start_.size() * sizeof(int32_t) +
               windows_.size() * sizeof(Range);
    }

    void run(int task, const Planes* in, const Planes* out, unsigned char* scratch) const override {
        run_groups(rows_.spans()[size_t(task / parts_)], part(groups_, parts_, task % parts_), in, out,
                   scratch);
    }
    void run_all(const Planes* in, const Planes* out, unsigned char* scratch) const override {
        for (const Span& span : rows_.spans()) run_groups(span, {0, groups_}, in, out, scratch);
    }

private:
    void run_groups(Span span, Range groups, const Planes* in, const Planes* out,
                    unsigned char* scratch) const {
        const uint8_t* const* const rows = rows_.gather(in[0], 0, span, scratch + at_rows());
        const auto quads = reinterpret_cast<const uint8_t**>(scratch + at_pointers());
        const uint8_t** const triples = quads + STEP * steps_;
        for (int i = 0; i < STEP * steps_; ++i) quads[i] = rows[std::min(i, rows_.count() - 1)];
        for (int t = 0; t < 4 * steps_; ++t) {
            for (int i = 0; i < 3; ++i) triples[4 * t + i] = quads[3 * t + i];
            triples[4 * t + 3] = quads[3 * t];  // its weights are 0
        }
        for (int pixel = 0; pixel < int(span.pixels); pixel += TILE) {
            const int pixels = std::min(TILE, int(span.pixels) - pixel);
            for (const Range& window : windows_) {
                if (stopped()) return;
                add_window(window, groups, quads, triples, pixel, pixels, scratch);
            }
            finish(groups, span.pixel + size_t(pixel), pixels, out, scratch);
        }
    }

    // Scratch memory: tables, interleaved codes, sums of a tile, some of them transposed, pointers to rows.
    static constexpr size_t AT_TRIPLES = size_t(WINDOW_STEPS) * 4 * shuffles::PIXELS * shuffles::TABLE_BYTES;
    static constexpr size_t AT_QUADS = AT_TRIPLES + size_t(WINDOW_STEPS) * 4 * 4 * TILE;
    static constexpr size_t AT_LINES = AT_QUADS + size_t(WINDOW_STEPS) * 3 * 4 * TILE;
    static constexpr size_t AT_SUMS = AT_LINES + size_t(16) * TILE * sizeof(int32_t);
    // Of sums, in elements. Lines of pixels a multiple of 4 KB apart would share few places in a cache.
    size_t pitch() const { return size_t(groups_) * GROUP + 16; }
    size_t at_pointers() const { return AT_SUMS + TILE * pitch() * sizeof(int32_t); }
    size_t at_rows() const {
        return aligned(at_pointers() + size_t((STEP + STEP / 3 * 4) * steps_) * sizeof(void*));
    }

    // Of steps: as long as tables stay in the cache and no sum of 16 bits can overflow, whatever the codes.
    void cut_windows(const ConvSpec& spec) {
        const int count = ceil_div(steps_, WINDOW_STEPS), longest = ceil_div(steps_, count);
        for (int begin = 0; begin < steps_;) {
            int end = std::min(begin + longest, steps_);
            for (int k = 0; k < channels_; ++k) {
                int positive = 0, negative = 0;
                const int8_t* const codes = spec.kernel(0, k);
                for (int step = begin; step < end; ++step) {
                    for (int row = step * STEP; row < std::min((step + 1) * STEP, rows_.count()); ++row) {
                        positive += codes[row] > 0;
                        negative += codes[row] < 0;
                    }
                    if (std::max(positive, negative) > MOST_SIGNS) end = step;
                }
            }
            windows_.push_back({begin, end});
            begin = end;
        }
    }

    // Windows follow each other, and in a window groups.
    size_t weights_at(Range window, int group) const {
        return size_t(window.begin * groups_ + window.size() * group) * STEP_BYTES;
    }

    // The weights of output `lane` of a group.
    template <class Weight> static void pack_step(int lane, const Weight& weight, unsigned char* to) {
        constexpr int NOTHING = 13;  // the number of the sum of nothing
        for (int i = 0; lane < SHUFFLED && i < STEP; i += 3) {
            const auto number = uint16_t(NOTHING + weight(i) + 3 * weight(i + 1) + 9 * weight(i + 2));
            std::memcpy(to + 2 * (i / 3 * SHUFFLED + lane), &number, 2);
        }
        const int first = 4 * SHUFFLED * 2 + (lane - SHUFFLED) * 4;
        for (int i = 0; lane >= SHUFFLED && i < STEP; ++i)
            to[first + i / 4 * (GROUP - SHUFFLED) * 4 + i % 4] = static_cast<unsigned char>(weight(i));
    }

    void pack(const ConvSpec& spec) {
        weights_.resize(size_t(groups_ * steps_) * STEP_BYTES / sizeof(Line));
        auto* const weights = reinterpret_cast<unsigned char*>(weights_.data());
        start_.resize(size_t(groups_ * GROUP));
        for (int k = 0; k < groups_ * GROUP; ++k) {
            const int8_t* const codes = k < channels_ ? spec.kernel(0, k) : nullptr;
            const auto weight = [&](int row) { return codes && row < rows_.count() ? codes[row] : 0; };
            for (const Range& window : windows_) {
                unsigned char* to = weights + weights_at(window, k / GROUP);
                for (int step = window.begin; step < window.end; ++step, to += STEP_BYTES)
                    pack_step(k % GROUP, [&](int i) { return weight(step * STEP + i); }, to);
            }
            // Signed codes are interleaved as unsigned ones, which are 128 larger.
            if (codes && is_signed_)
                start_[size_t(k)] = -128 * std::accumulate(codes, codes + rows_.count(), 0);
        }
    }

    void add_window(Range window, Range groups, const uint8_t* const* quads, const uint8_t* const* triples,
                    int pixel, int pixels, unsigned char* scratch) const {
        const auto* const weights = reinterpret_cast<const unsigned char*>(weights_.data());
        shuffles::Job job;
        job.vectors = ceil_div(pixels, simd_.quad_lanes);
        const int first = window.begin * STEP, rows = window.size() * STEP;
        simd_.pack_quads(quads + first, rows, is_signed_, size_t(pixel), job.vectors, scratch + AT_QUADS);
        simd_.pack_quads(triples + first / 3 * 4, rows / 3 * 4, is_signed_, size_t(pixel), job.vectors,
                         scratch + AT_TRIPLES);
        job.triples = scratch + AT_TRIPLES;
        job.quads = scratch + AT_QUADS;
        job.steps = window.size();
        job.groups = groups.size();
        job.weights = weights + weights_at(window, groups.begin);
        job.pitch = pitch();
        job.tables = scratch;
        for (job.pixel = 0; job.pixel < pixels; job.pixel += shuffles::PIXELS) {
            job.pixels = std::min(shuffles::PIXELS, pixels - job.pixel);
            job.sums = reinterpret_cast<int32_t*>(scratch + AT_SUMS) + size_t(job.pixel) * pitch();
            job.from = window.begin ? job.sums : start_.data() + groups.begin * GROUP;
            job.from_pitch = window.begin ? pitch() : 0;
            simd_.add_shuffled(job);
        }
    }

    void finish(Range groups, size_t pixel, int pixels, const Planes* out, unsigned char* scratch) const {
        const auto lines = reinterpret_cast<int32_t*>(scratch + AT_LINES);
        Finish finish;
        finish.sums = lines;
        finish.stride = TILE;
        finish.vectors = ceil_div(pixels, simd_.lanes);
        finish.pixel = pixel;
        const int end = std::min(groups.end * GROUP, channels_);
        for (int k = groups.begin * GROUP; k < end; k += 16) {
            const int32_t* const sums =
                reinterpret_cast<const int32_t*>(scratch + AT_SUMS) + (k - groups.begin * GROUP);
            simd_.transpose_sums(sums, pitch(), ceil_div(pixels, 16), lines);
            finish.channels = std::min(16, end - k);
            outputs_.write(simd_.finish_i32, finish, k, out);
        }
    }

    const Simd& simd_;
    const Rows rows_;
    const Outputs outputs_;
    const bool is_signed_;
    const int channels_, groups_, steps_;
    int parts_ = 1;
    std::vector<Range> windows_;  // of steps
    std::vector<Line> weights_;
    std::vector<int32_t> start_;
};

}  // namespace

std::unique_ptr<Op> make_shuffle_conv(const ConvSpec& spec, const Simd* simd, int threads) {
    return std::make_unique<ShuffleConv>(spec, *simd, threads);
}

}  // namespace dbq::vec
