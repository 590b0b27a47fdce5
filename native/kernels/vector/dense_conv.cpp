// Convolution by multiplication: pairs of rows times pairs of weights, pixels in lanes, sums in registers.
// Ternary weights on unsigned codes use byte products with int16 sums, everything else 16-bit products.
#include <algorithm>

#include "kernels/vector/outputs.h"
#include "kernels/vector/rows.h"
#include "threads/stop.h"

namespace dbq::vec {
namespace {

constexpr size_t TILE_BYTES = 64 * 1024;  // of interleaved codes; each block reads them once from L2 cache
constexpr int CHUNK_PAIRS = 64;           // bytes: 255 * 128 < 2^15

class DenseConv final : public Op {
public:
    DenseConv(const ConvSpec& spec, const Simd& simd, int threads, bool bytes)
        : simd_(simd), rows_(spec, simd, pieces_for(threads)), outputs_(spec),
          is_signed_(spec.in_type == Type::I8), bytes_(bytes), branches_(spec.branches), groups_(spec.groups),
          outputs_in_group_(spec.outputs_in_group()), pairs_(ceil_div(rows_.count(), 2)) {
        choose_tile();
        pack(spec);
        const int units = groups_ * blocks_in_group();
        if (threads > 1) parts_ = std::min(units, ceil_div(3 * threads, int(rows_.spans().size())));
    }

    int tasks() const override { return int(rows_.spans().size()) * parts_; }

    size_t scratch_bytes() const override { return tile_bytes() + sum_bytes() + rows_.scratch_bytes(); }

    size_t weight_bytes() const override {
        return byte_weights_.size() + word_weights_.size() * sizeof(int16_t);
    }

    void run(int task, const Planes* in, const Planes* out, unsigned char* scratch) const override {
        const Span span = rows_.spans()[size_t(task / parts_)];
        const Range units = part(groups_ * blocks_in_group(), parts_, task % parts_);
        const int total = ceil_div(int(span.pixels), simd_.lanes), tiles = ceil_div(total, vectors_);
        unsigned char *codes = scratch, *sums = codes + tile_bytes();
        for (int unit = units.begin; unit < units.end;) {
            const int group = unit / blocks_in_group(),
                      end = std::min(units.end, (group + 1) * blocks_in_group());
            const uint8_t* const* rows = rows_.gather(in[0], group, span, sums + sum_bytes());
            for (int t = 0; t < tiles; ++t) {
                const Range tile = part(total, tiles, t);
                interleave(rows, tile, codes);
                for (int u = unit; u < end; ++u) {
                    if (stopped()) return;
                    run_block(u, tile, span, codes, sums, out);
                }
            }
            unit = end;
        }
    }

private:
    size_t pair_bytes() const {
        return size_t(bytes_ ? 2 : 4) * size_t(simd_.lanes);
    }  // of a vector of pixels
    size_t tile_bytes() const { return size_t(pairs_) * size_t(vectors_) * pair_bytes(); }
    int chunks() const { return bytes_ ? ceil_div(pairs_, CHUNK_PAIRS) : 1; }
    size_t sum_bytes() const {
        return size_t(chunks()) * dense::LISTS * size_t(vectors_) * size_t(simd_.lanes) *
               (bytes_ ? sizeof(int16_t) : sizeof(int32_t));
    }
    int channels_in_block() const { return dense::LISTS / branches_; }
    int blocks_in_group() const { return ceil_div(outputs_in_group_, channels_in_block()); }

    void choose_tile() {
        const int longest = rows_.longest_span();
        const int fitting = std::max(2, int(TILE_BYTES / (size_t(pairs_) * pair_bytes())) / 2 * 2);
        vectors_ = ceil_div(longest, ceil_div(longest, fitting));
    }

    // weights[block][pair][list][2]: the order they are read in.
    void pack(const ConvSpec& spec) {
        const size_t taps = size_t(rows_.count()), block_size = size_t(pairs_) * dense::LISTS * 2;
        const size_t size = size_t(groups_ * blocks_in_group()) * block_size;
        bytes_ ? byte_weights_.resize(size) : word_weights_.resize(size);
        for (int k = 0; k < spec.out.channels; ++k)
            for (int j = 0; j < branches_; ++j) {
                const int in_group = k % outputs_in_group_, group = k / outputs_in_group_;
                const int block = group * blocks_in_group() + in_group / channels_in_block();
                const int list = in_group % channels_in_block() * branches_ + j;
                const int8_t* codes = spec.kernel(j, k);
                for (size_t d = 0; d < taps; ++d) {
                    const size_t to =
                        size_t(block) * block_size + (d / 2 * dense::LISTS + size_t(list)) * 2 + d % 2;
                    if (bytes_) byte_weights_[to] = codes[d];
                    else word_weights_[to] = codes[d];
                }
            }
    }

    void interleave(const uint8_t* const* rows, Range tile, unsigned char* codes) const {
        const size_t pixel = size_t(tile.begin) * size_t(simd_.lanes);
        if (bytes_) return simd_.pair_bytes(rows, rows_.count(), pixel, tile.size(), codes);
        simd_.pair_words(rows, rows_.count(), is_signed_, pixel, tile.size(),
                         reinterpret_cast<int16_t*>(codes));
    }

    void run_block(int unit, Range tile, Span span, const unsigned char* codes, unsigned char* sums,
                   const Planes* out) const {
        const int in_group = unit % blocks_in_group() * channels_in_block();
        const size_t weights = size_t(unit) * size_t(pairs_) * dense::LISTS * 2;
        Finish finish;
        finish.sums = sums;
        finish.stride = size_t(vectors_) * size_t(simd_.lanes);
        finish.chunks = chunks();
        finish.chunk_stride = finish.stride * dense::LISTS;
        finish.channels = std::min(channels_in_block(), outputs_in_group_ - in_group);
        finish.vectors = tile.size();
        finish.pixel = span.pixel + size_t(tile.begin) * size_t(simd_.lanes);
        const int lists = finish.channels * branches_;
        if (bytes_) {
            for (int c = 0; c < chunks(); ++c) {
                const int first = c * CHUNK_PAIRS;
                simd_.dense_bytes(codes + size_t(first) * size_t(tile.size()) * pair_bytes(),
                                  byte_weights_.data() + weights + size_t(first) * dense::LISTS * 2,
                                  std::min(CHUNK_PAIRS, pairs_ - first), lists, tile.size(), finish.stride,
                                  reinterpret_cast<int16_t*>(sums) + size_t(c) * finish.chunk_stride);
            }
        } else {
            simd_.dense_words(reinterpret_cast<const int16_t*>(codes), word_weights_.data() + weights, pairs_,
                              lists, tile.size(), finish.stride, reinterpret_cast<int32_t*>(sums));
        }
        outputs_.write(bytes_ ? simd_.finish_i16 : simd_.finish_i32, finish,
                       unit / blocks_in_group() * outputs_in_group_ + in_group, out);
    }

    const Simd& simd_;
    const Rows rows_;
    const Outputs outputs_;
    const bool is_signed_, bytes_;
    const int branches_, groups_, outputs_in_group_, pairs_;
    int vectors_ = 0, parts_ = 1;
    std::vector<int8_t> byte_weights_;
    std::vector<int16_t> word_weights_;
};

}  // namespace

std::unique_ptr<Op> make_dense_bytes(const ConvSpec& spec, const Simd* simd, int threads) {
    return std::make_unique<DenseConv>(spec, *simd, threads, true);
}

std::unique_ptr<Op> make_dense_words(const ConvSpec& spec, const Simd* simd, int threads) {
    return std::make_unique<DenseConv>(spec, *simd, threads, false);
}

}  // namespace dbq::vec
