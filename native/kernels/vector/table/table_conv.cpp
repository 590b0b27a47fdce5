// Ternary convolution without multiplications: three rows of codes have 13 sums up to the sign, four have 40;
// an output adds or subtracts one of them where three or four weights would be multiplied. The sums of a
// block of groups are computed once for a tile of pixels, stay in the cache and serve all outputs.
#include <algorithm>

#include "kernels/vector/outputs.h"
#include "kernels/vector/rows.h"
#include "kernels/vector/table/split.h"
#include "kernels/vector/table/table_lists.h"
#include "threads/stop.h"

namespace dbq::vec {
namespace {

// Groups of three rows: tables for the 32 KB of L1 cache. Few input channels leave space for wide tiles.
constexpr size_t TABLE_BYTES = 28 * 1024;
constexpr int TILE_PIXELS = 48, WIDE_TILE_PIXELS = 64;
// Groups of four need a fifth fewer additions, but more than twice the table. That pays for many sums,
// although the table is partly in the L2 cache then. Positions fit 16 bits.
constexpr int LARGE_SUMS = 768;
constexpr size_t LARGE_TABLE_BYTES = 60 * 1024;
constexpr int LARGE_TILE_PIXELS = 32;
constexpr size_t SUM_BYTES = 512 * 1024;  // of 1 MB of L2 cache
constexpr int MIN_SLICE = 64;             // sums: fewer do not pay for building the table again

// Some outputs of a group: what a task computes from one table.
struct Slice {
    int group = 0, first = 0, channels = 0;
    table::PackedLists lists;
};

class TableConv final : public Op {
public:
    TableConv(const ConvSpec& spec, const Simd& simd, int threads)
        : simd_(simd), rows_(spec, simd, pieces_for(threads)), outputs_(spec),
          is_signed_(spec.in_type == Type::I8), joined_(spec.weights == Weights::Fixed) {
        table::Split split;
        if (joined_) split = table::split(spec);
        branches_ = joined_ ? split.branches : spec.branches;
        choose_tile(spec.outputs_in_group() * branches_);
        make_slices(spec, joined_ ? split.codes : spec.codes, threads);
        factors_ = std::move(split.factors);
    }

    int tasks() const override { return int(rows_.spans().size()) * parts_; }

    size_t scratch_bytes() const override { return table_bytes_ + sum_bytes_ + rows_.scratch_bytes(); }

    size_t weight_bytes() const override {
        size_t bytes = factors_.size() * sizeof(int16_t);
        for (const Slice& slice : slices_) bytes += slice.lists.bytes();
        return bytes;
    }

    void run(int task, const Planes* in, const Planes* out, unsigned char* scratch) const override {
        const Span span = rows_.spans()[size_t(task / parts_)];
        const Range range = part(int(slices_.size()), parts_, task % parts_);
        auto table = reinterpret_cast<int16_t*>(scratch);
        auto sums = reinterpret_cast<int16_t*>(scratch + table_bytes_);
        const uint8_t* const* rows = nullptr;
        std::fill(table, table + row_size(), int16_t(0));
        for (int s = range.begin, group = -1; s < range.end; ++s) {
            const Slice& slice = slices_[size_t(s)];
            if (slice.group != group) {
                group = slice.group;
                rows = rows_.gather(in[0], group, span, scratch + table_bytes_ + sum_bytes_);
            }
            run_slice(slice, span, rows, table, sums, out);
        }
    }

private:
    // Of the table and of sums.
    size_t row_size() const { return size_t(layout_.pitch) * size_t(simd_.lanes); }
    size_t row_bytes() const { return row_size() * sizeof(int16_t); }

    void choose_tile(int sums) {
        layout_.lanes = simd_.lanes;
        layout_.rows = rows_.count();
        layout_.is_signed = is_signed_;
        if (sums >= LARGE_SUMS) {
            layout_.group_rows = 4;
            table_bytes_ = LARGE_TABLE_BYTES;
            fit_tile(LARGE_TILE_PIXELS);
            return;
        }
        fit_tile(WIDE_TILE_PIXELS);
        if (layout_.block_rows < layout_.rows) fit_tile(TILE_PIXELS);
    }

    // Tiles of about `pixels` pixels, split evenly over the longest span: its last one is nearly full.
    void fit_tile(int pixels) {
        const int widest = std::clamp(pixels / simd_.lanes, 1, simd_.table_vectors);
        const int longest = rows_.longest_span();
        layout_.pitch = ceil_div(longest, ceil_div(longest, widest));
        const int table_rows = int(table_bytes_ / row_bytes()) - 1;  // after one row of zeros
        const int groups = table_rows / table::sums_of_group(layout_.group_rows);
        layout_.block_rows =
            std::min(groups, table::MAX_BLOCK_ROWS / layout_.group_rows) * layout_.group_rows;
    }

    // Few enough sums for the L2 cache, and enough slices for the threads.
    int slices_of_group(int lists, int groups, int threads) const {
        const size_t chunks = size_t(ceil_div(rows_.count(), 128));  // about
        const int cached = std::max(MIN_SLICE, int(SUM_BYTES / (chunks * row_bytes())));
        const int pieces = ceil_div(lists, std::min(cached, 65534));
        const int others = int(rows_.spans().size()) * groups, wanted = 2 * threads;
        if (threads <= 1 || others >= wanted) return pieces;
        return std::max(pieces, std::min(ceil_div(wanted, others), lists / MIN_SLICE));
    }

    void make_slices(const ConvShape& spec, const std::vector<int8_t>& codes, int threads) {
        const int outputs = spec.outputs_in_group();
        const int pieces = std::clamp(slices_of_group(outputs * branches_, spec.groups, threads), 1, outputs);
        for (int group = 0; group < spec.groups; ++group)
            for (int i = 0; i < pieces; ++i) {
                const Range range = part(outputs, pieces, i);
                slices_.push_back({group, group * outputs + range.begin, range.size(), {}});
                slices_.back().lists = table::pack_lists(codes_of(spec, codes, slices_.back()), layout_);
            }
        if (threads > 1)
            parts_ = std::min(int(slices_.size()), ceil_div(3 * threads, int(rows_.spans().size())));
        for (const Slice& slice : slices_)
            sum_bytes_ =
                std::max(sum_bytes_, size_t(slice.lists.chunks) * chunk_size(slice) * sizeof(int16_t));
    }

    std::vector<const int8_t*> codes_of(const ConvShape& spec, const std::vector<int8_t>& codes,
                                        const Slice& slice) const {
        std::vector<const int8_t*> lists;
        for (int k = slice.first; k < slice.first + slice.channels; ++k)
            for (int j = 0; j < branches_; ++j)
                lists.push_back(codes.data() + size_t(j * spec.out.channels + k) * size_t(spec.taps()));
        return lists;
    }

    // Sums of one chunk, and one more that fills the last pair of lists.
    size_t chunk_size(const Slice& slice) const {
        return size_t(slice.channels * branches_ + 1) * row_size();
    }

    void run_slice(const Slice& slice, Span span, const uint8_t* const* rows, int16_t* table, int16_t* sums,
                   const Planes* out) const {
        const int total = ceil_div(int(span.pixels), simd_.lanes), tiles = ceil_div(total, layout_.pitch);
        for (int t = 0; t < tiles; ++t) {
            const Range tile = part(total, tiles, t);
            for (const table::Block& block : slice.lists.blocks) {
                if (stopped()) return;
                simd_.build_table(rows + block.first_row, block.rows, layout_.group_rows, is_signed_,
                                  size_t(tile.begin) * size_t(simd_.lanes), tile.size(), layout_.pitch,
                                  table + row_size());
                simd_.add_lists(slice.lists.of(block), table, tile.size(), layout_.pitch, block.fresh,
                                sums + size_t(block.chunk) * chunk_size(slice));
            }
            Finish finish;
            finish.sums = sums;
            finish.stride = row_size();
            finish.chunks = slice.lists.chunks;
            finish.chunk_stride = chunk_size(slice);
            finish.channels = slice.channels;
            finish.vectors = tile.size();
            finish.pixel = span.pixel + size_t(tile.begin) * size_t(simd_.lanes);
            finish.joined = branches_;
            finish.factors = factors_.data() + (joined_ ? slice.first * table::FACTORS : 0);
            outputs_.write(joined_ ? simd_.finish_joined : simd_.finish_i16, finish, slice.first, out);
        }
    }

    const Simd& simd_;
    const Rows rows_;
    const Outputs outputs_;
    const bool is_signed_, joined_;
    int branches_ = 1;  // of the lists
    table::Layout layout_;
    int parts_ = 1;
    size_t table_bytes_ = TABLE_BYTES, sum_bytes_ = 0;
    std::vector<Slice> slices_;
    std::vector<int16_t> factors_;  // of kernels whose branches are joined
};

}  // namespace

int branches_of(const ConvSpec& spec) { return table::branches_of(spec); }

std::unique_ptr<Op> make_table_conv(const ConvSpec& spec, const Simd* simd, int threads) {
    return std::make_unique<TableConv>(spec, *simd, threads);
}

}  // namespace dbq::vec
