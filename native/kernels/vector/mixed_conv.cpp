// One ternary branch on processors with dot products: of every tile of pixels, a part goes through the table
// of sums and the rest through dot products, in one loop. Both know all weights, each in its own form.
#include <algorithm>
#include <cstring>
#include <numeric>

#include "kernels/vector/outputs.h"
#include "kernels/vector/rows.h"
#include "kernels/vector/table/table_lists.h"
#include "threads/stop.h"

namespace dbq::vec {
namespace {

constexpr size_t TABLE_BYTES = 28 * 1024;  // of 32 KB of L1 cache
constexpr size_t SUM_BYTES = 512 * 1024;   // of 1 MB of L2 cache
constexpr int GROUP_ROWS = 3, LEAST_CHANNELS = 64;
constexpr int RUN_COST = 12;   // measured: 0, 6, 12, 24
constexpr int HALF_TILE = 64;  // pixels, by the table and by dot products
constexpr int CHANNELS = 8;    // what dot products of a tile may do at once: slices are multiples of it

// The pixels of a tile. Only dot products may write beyond the end of a span, up to whole vectors.
struct Cut {
    int table = 0, dots = 0;
};

// In cycles for twelve weights. A table row of 32 pixels, four of which serve these weights, is a load. A dot
// product of 16 pixels and four weights, of which there are three, is a multiplication and half a load.
double cycles(const Cut& cut) {
    const double products = 3 * 0.5 * ceil_div(cut.dots, 8), loads = 4.0 * cut.table / 32 + products / 2;
    return std::max(products, loads);
}

Cut first_cut(int pixels) {
    if (pixels >= 2 * HALF_TILE) return {HALF_TILE, HALF_TILE};
    Cut best = {std::min(pixels, HALF_TILE) / 32 * 32, 0};
    best.dots = pixels - best.table;
    for (int table = 0; table <= std::min(pixels, HALF_TILE); table += 32) {
        const Cut cut = {table, pixels - table};
        if (cut.dots <= HALF_TILE && cycles(cut) < cycles(best)) best = cut;
    }
    return best;
}

// Some outputs.
struct Slice {
    int first = 0, channels = 0;
    table::PackedLists lists;
};

class MixedConv final : public Op {
public:
    MixedConv(const ConvSpec& spec, const Simd& simd, int threads)
        : simd_(simd), rows_(spec, simd, cuts_pixels(spec.out.pixels(), threads) ? threads : 1),
          outputs_(spec), is_signed_(spec.in_type == Type::I8), quads_(ceil_div(rows_.count(), 4)) {
        choose_blocks();
        make_slices(spec, threads);
        pack(spec);
    }

    int tasks() const override { return int(rows_.spans().size()) * parts_; }
    size_t scratch_bytes() const override {
        return at_sums() + size_t(batch_) * sum_bytes_ + rows_.scratch_bytes();
    }
    size_t weight_bytes() const override {
        size_t bytes = weights_.size() + start_.size() * sizeof(int32_t);
        for (const Slice& slice : slices_) bytes += slice.lists.bytes();
        return bytes;
    }

    void run(int task, const Planes* in, const Planes* out, unsigned char* scratch) const override {
        run_slices(rows_.spans()[size_t(task / parts_)], part(int(slices_.size()), parts_, task % parts_), in,
                   out, scratch);
    }
    void run_all(const Planes* in, const Planes* out, unsigned char* scratch) const override {
        for (const Span& span : rows_.spans()) run_slices(span, {0, int(slices_.size())}, in, out, scratch);
    }

private:
    void run_slices(Span span, Range range, const Planes* in, const Planes* out,
                    unsigned char* scratch) const {
        const auto rows = rows_.gather(in[0], 0, span, scratch + at_sums() + size_t(batch_) * sum_bytes_);
        for (int pixel = 0; pixel < int(span.pixels);) {
            const Cut cut = first_cut(int(span.pixels) - pixel);
            const int vectors = ceil_div(cut.dots, simd_.quad_lanes);
            const int dots_begin = pixel + cut.table;
            if (cut.dots)
                simd_.pack_quads(rows, rows_.count(), is_signed_, size_t(dots_begin), vectors,
                                 scratch + TABLE_BYTES);
            for (int first = range.begin; first < range.end; first += batch_) {
                std::vector<Part> parts(size_t(std::min(batch_, range.end - first)));
                for (size_t i = 0; i < parts.size(); ++i) {
                    parts[i].slice = &slices_[size_t(first) + i];
                    parts[i].sums = reinterpret_cast<int16_t*>(scratch + at_sums() + i * sum_bytes_);
                    parts[i].finishes.resize(outputs_.size());
                    parts[i].job = job_of(*parts[i].slice, out, parts[i].finishes, scratch + TABLE_BYTES);
                    parts[i].job.vectors = vectors;
                    parts[i].job.half = cut.dots <= vectors * simd_.quad_lanes - simd_.quad_lanes / 2;
                    for (Finish& finish : parts[i].finishes) finish.pixel = span.pixel + size_t(dots_begin);
                }
                if (stopped()) return;
                if (cut.table) run_table(parts, span, pixel, cut, rows, out, scratch);
                else
                    for (const Part& part : parts) simd_.multiply_quads(part.job);
            }
            pixel += cut.table + cut.dots;
        }
    }

    // What is computed for a slice and a tile.
    struct Part {
        const Slice* slice = nullptr;
        int16_t* sums = nullptr;
        std::vector<Finish> finishes;
        quads::Job job;
    };

    size_t row_size() const { return size_t(layout_.pitch) * size_t(simd_.lanes); }
    size_t packed_bytes() const { return size_t(quads_) * 4 * HALF_TILE; }
    size_t at_sums() const { return TABLE_BYTES + packed_bytes(); }  // in the scratch memory
    size_t block_bytes() const { return size_t(quads_) * 4 * size_t(simd_.quad_block); }
    size_t chunk_size(const Slice& slice) const { return size_t(slice.channels + 1) * row_size(); }

    void choose_blocks() {
        int widest = 32;
        for (const Span& span : rows_.spans())
            for (int pixel = 0; pixel < int(span.pixels);) {
                const Cut cut = first_cut(int(span.pixels) - pixel);
                widest = std::max(widest, cut.table);
                pixel += cut.table + cut.dots;
            }
        layout_.lanes = simd_.lanes;
        layout_.pitch = widest / simd_.lanes;
        layout_.rows = rows_.count();
        layout_.group_rows = GROUP_ROWS;
        layout_.is_signed = is_signed_;
        layout_.run_cost = RUN_COST;
        const int table_rows = int(TABLE_BYTES / (row_size() * sizeof(int16_t))) - 1;  // after one of zeros
        const int groups =
            std::min(table_rows / table::sums_of_group(GROUP_ROWS), table::MAX_BLOCK_ROWS / GROUP_ROWS);
        const int all = ceil_div(rows_.count(), GROUP_ROWS), blocks = ceil_div(all, groups);
        layout_.block_rows = ceil_div(all, blocks) * GROUP_ROWS;
    }

    // For the threads, and so that the sums of a slice stay in the L2 cache.
    void make_slices(const ConvSpec& spec, int threads) {
        const int channels = spec.out.channels, units = ceil_div(channels, CHANNELS);
        parts_ =
            std::min(ceil_div(threads, int(rows_.spans().size())), std::max(1, channels / LEAST_CHANNELS));
        const size_t chunks = size_t(ceil_div(rows_.count(), 200));  // about
        const size_t bytes = chunks * size_t(ceil_div(channels, parts_)) * row_size() * sizeof(int16_t);
        const int slices = std::min(units, parts_ * (1 + int(bytes / SUM_BYTES)));
        for (int i = 0; i < slices; ++i) {
            const Range range = part(units, slices, i);
            Slice slice;
            slice.first = range.begin * CHANNELS;
            slice.channels = std::min(range.end * CHANNELS, channels) - slice.first;
            std::vector<const int8_t*> codes;
            for (int k = slice.first; k < slice.first + slice.channels; ++k)
                codes.push_back(spec.kernel(0, k));
            slice.lists = table::pack_lists(codes, layout_);
            sum_bytes_ = std::max(sum_bytes_,
                                  aligned(size_t(slice.lists.chunks) * chunk_size(slice) * sizeof(int16_t)));
            slices_.push_back(std::move(slice));
        }
        batch_ = std::clamp(int(SUM_BYTES / sum_bytes_), 1, int(slices_.size()));
    }

    // Weights as multiply_quads takes them.
    void pack(const ConvSpec& spec) {
        const int block = simd_.quad_block, channels = int(round_up(size_t(spec.out.channels), CHANNELS));
        weights_.resize(size_t(channels / block) * block_bytes());
        start_.resize(size_t(channels));
        for (int k = 0; k < spec.out.channels; ++k) {
            const int8_t* const codes = spec.kernel(0, k);
            int8_t* const to = weights_.data() + size_t(k / block) * block_bytes() + size_t(k % block) * 4;
            for (int row = 0; row < rows_.count(); row += 4)
                std::memcpy(to + row * block, codes + row, size_t(std::min(4, rows_.count() - row)));
            const int32_t sum = std::accumulate(codes, codes + rows_.count(), 0);
            start_[size_t(k)] = (simd_.quad_offset - (is_signed_ ? 128 : 0)) * sum;
        }
    }

    quads::Job job_of(const Slice& slice, const Planes* out, std::vector<Finish>& finishes,
                      const uint8_t* codes) const {
        for (size_t o = 0; o < finishes.size(); ++o) outputs_.describe(o, slice.first, out, finishes[o]);
        quads::Job job;
        job.codes = codes;
        job.groups = quads_;
        job.weights = weights_.data() + size_t(slice.first / simd_.quad_block) * block_bytes();
        job.start = start_.data() + slice.first;
        job.channels = slice.channels;
        job.outputs = finishes.data();
        job.output_count = int(finishes.size());
        return job;
    }

    // All of a tile: every block of the table is built once for all parts, and with it goes a share of the
    // channels of their dot products.
    void run_table(const std::vector<Part>& parts, Span span, int pixel, const Cut& cut,
                   const uint8_t* const* rows, const Planes* out, unsigned char* scratch) const {
        const auto table = reinterpret_cast<int16_t*>(scratch);
        const int vectors = cut.table / simd_.lanes, blocks = ceil_div(rows_.count(), layout_.block_rows);
        std::fill(table, table + row_size(), int16_t(0));
        for (int b = 0; b < blocks; ++b) {
            const int first = b * layout_.block_rows;
            simd_.build_table(rows + first, std::min(layout_.block_rows, rows_.count() - first), GROUP_ROWS,
                              is_signed_, size_t(pixel), vectors, layout_.pitch, table + row_size());
            for (const Part& some : parts) {
                const table::Block& block = some.slice->lists.blocks[size_t(b)];
                const Range share = part(cut.dots ? ceil_div(some.slice->channels, CHANNELS) : 0, blocks, b);
                simd_.add_lists_and_quads(some.slice->lists.of(block), table, vectors, layout_.pitch,
                                          block.fresh,
                                          some.sums + size_t(block.chunk) * chunk_size(*some.slice), some.job,
                                          share.begin * CHANNELS, share.end * CHANNELS);
            }
        }
        for (const Part& some : parts) {
            Finish finish;
            finish.sums = some.sums;
            finish.stride = row_size();
            finish.chunks = some.slice->lists.chunks;
            finish.chunk_stride = chunk_size(*some.slice);
            finish.channels = some.slice->channels;
            finish.vectors = vectors;
            finish.pixel = span.pixel + size_t(pixel);
            outputs_.write(simd_.finish_i16, finish, some.slice->first, out);
        }
    }

    const Simd& simd_;
    const Rows rows_;
    const Outputs outputs_;
    const bool is_signed_;
    const int quads_;
    table::Layout layout_;
    int parts_ = 1, batch_ = 1;  // batch_: slices at a time
    size_t sum_bytes_ = 0;
    std::vector<Slice> slices_;
    std::vector<int8_t> weights_;
    std::vector<int32_t> start_;
};

}  // namespace

std::unique_ptr<Op> make_mixed_conv(const ConvSpec& spec, const Simd* simd, int threads) {
    return std::make_unique<MixedConv>(spec, *simd, threads);
}

}  // namespace dbq::vec
