// Ternary convolution without multiplications: three rows of codes have 13 sums up to the sign; an output
// adds or subtracts one of them where three weights would be multiplied. The sums of a block of groups are
// made once for a tile of pixels, stay in the L1 cache and serve all outputs and branches.
#include <algorithm>
#include <cstdlib>

#include "outputs.h"
#include "ranges.h"
#include "rows.h"
#include "vector_ops.h"

namespace dbq {
namespace {

constexpr int TILE_VECTORS = 4;           // at most MAX_TABLE_VECTORS
constexpr size_t TABLE_BYTES = 28 * 1024;  // of 32 KB of L1 cache; positions fit 16 bits
constexpr size_t SUM_BYTES = 512 * 1024;
constexpr int MIN_SLICE = 64;            // sums: fewer do not pay for building the table again

constexpr int MAX_BLOCK_ROWS = 126;      // a block fits a chunk whatever its weights, see fits()

constexpr uint16_t ZEROS = 0;            // position of a row of zeros: the first of the table

struct Block {
    int first_row = 0, rows = 0, chunk = 0;
    bool fresh = false;  // the first of its chunk
    size_t run = 0, runs = 0, stream = 0;
};

// Some outputs of a group, packed: what a task computes from one table.
struct Slice {
    int group = 0, first = 0, channels = 0, chunks = 0;
    std::vector<Block> blocks;
    std::vector<Run> runs;
    std::vector<uint16_t> stream;
};

struct List {
    uint16_t number = 0;
    std::vector<uint16_t> adds, subs;
};

// Four of a, four of b, and so on.
void append_interleaved(const std::vector<uint16_t>& a, const std::vector<uint16_t>& b, std::vector<uint16_t>& to) {
    for (size_t i = 0; i < a.size(); i += 4) {
        const size_t end = std::min(i + 4, a.size());
        to.insert(to.end(), a.data() + i, a.data() + end);
        to.insert(to.end(), b.data() + i, b.data() + end);
    }
}

class TableConv final : public Op {
public:
    TableConv(const ConvSpec& spec, const Simd& simd, int threads)
        : simd_(simd), rows_(spec, simd), outputs_(spec.outputs, spec.branches, largest_sum(spec)),
          is_signed_(spec.in_type == Type::I8), branches_(spec.branches), spans_(rows_.spans(threads)) {
        choose_tile();
        make_slices(spec, threads);
    }

    int tasks() const override { return int(spans_.size()) * parts_; }

    size_t scratch_bytes() const override { return pointer_bytes() + TABLE_BYTES + sum_bytes_ + rows_.scratch_bytes(spans_); }

    std::string kernel() const override { return std::string("ternary-table ") + simd_.name; }

    size_t weight_bytes() const override {
        size_t bytes = 0;
        for (const Slice& s : slices_)
            bytes += s.stream.size() * sizeof(uint16_t) + s.runs.size() * sizeof(Run) + s.blocks.size() * sizeof(Block);
        return bytes;
    }

    void run(int task, const Planes* in, const Planes* out, unsigned char* scratch) const override {
        const Span span = spans_[size_t(task / parts_)];
        const Range range = part(int(slices_.size()), parts_, task % parts_);
        auto rows = reinterpret_cast<const uint8_t**>(scratch);
        auto table = reinterpret_cast<int16_t*>(scratch + pointer_bytes());
        auto sums = reinterpret_cast<int16_t*>(scratch + pointer_bytes() + TABLE_BYTES);
        unsigned char* copies = scratch + pointer_bytes() + TABLE_BYTES + sum_bytes_;
        std::fill(table, table + pitch_ * LANES, int16_t(0));
        for (int s = range.begin, group = -1; s < range.end; ++s) {
            const Slice& slice = slices_[size_t(s)];
            if (slice.group != group) {
                group = slice.group;
                rows_.gather(in[0], group, span, copies, rows);
            }
            run_slice(slice, span, rows, table, sums, out);
        }
    }

private:
    size_t pointer_bytes() const { return round_up(size_t(rows_.count()) * sizeof(void*), PLANE_ALIGNMENT); }

    // The widest tile, split evenly over the longest span, so that its last one is nearly full.
    void choose_tile() {
        int longest = 0;
        for (const Span& span : spans_) longest = std::max(longest, ceil_div(int(span.pixels), LANES));
        pitch_ = ceil_div(longest, ceil_div(longest, TILE_VECTORS));
        const int row_bytes = pitch_ * LANES * int(sizeof(int16_t));
        block_rows_ = std::min((int(TABLE_BYTES) / row_bytes - 1) / GROUP_SUMS * GROUP_ROWS, MAX_BLOCK_ROWS);
    }

    void make_slices(const ConvSpec& spec, int threads) {
        const int outputs = spec.out.channels / spec.groups, lists = outputs * branches_;
        // Chunks of 128 taps at worst; all sums of a slice should stay in the L2 cache.
        const size_t list_bytes = size_t(ceil_div(rows_.count(), 128)) * size_t(pitch_) * LANES * sizeof(int16_t);
        const int cached = std::max(MIN_SLICE, int(SUM_BYTES / list_bytes));
        int pieces = ceil_div(lists, std::min(cached, 65534));
        const int wanted = 2 * threads;
        if (threads > 1 && int(spans_.size()) * spec.groups < wanted) {
            const int for_threads = ceil_div(wanted, int(spans_.size()) * spec.groups);
            pieces = std::max(pieces, std::min(for_threads, lists / MIN_SLICE));
        }
        pieces = std::max(1, std::min(pieces, outputs));
        for (int g = 0; g < spec.groups; ++g)
            for (int i = 0; i < pieces; ++i) {
                const Range range = part(outputs, pieces, i);
                slices_.push_back({});
                slices_.back().group = g;
                slices_.back().first = g * outputs + range.begin;
                slices_.back().channels = range.size();
                pack(spec, slices_.back());
            }
        parts_ = threads > 1 ? std::min(int(slices_.size()), ceil_div(3 * threads, int(spans_.size()))) : 1;
        for (const Slice& s : slices_) {
            const size_t rows = size_t(s.channels * branches_ + 1) * size_t(s.chunks);
            sum_bytes_ = std::max(sum_bytes_, rows * size_t(pitch_) * LANES * sizeof(int16_t));
        }
    }

    const int8_t* codes_of(const ConvSpec& spec, const Slice& slice, int list) const {
        const size_t k = size_t(slice.first + list / branches_), j = size_t(list % branches_);
        return spec.codes.data() + (j * size_t(spec.out.channels) + k) * size_t(rows_.count());
    }

    // A chunk's sums fit int16: unsigned codes, 128 positive and 128 negative taps: 255 * 128 < 2^15;
    // signed codes, 255 taps: 128 * 255 < 2^15.
    bool fits(int positive, int negative) const {
        return is_signed_ ? positive + negative <= 255 : positive <= 128 && negative <= 128;
    }

    void pack(const ConvSpec& spec, Slice& slice) const {
        const int lists = slice.channels * branches_, rows = rows_.count();
        std::vector<int> positive(size_t(lists), 0), negative(size_t(lists), 0);
        for (int first = 0; first < rows; first += block_rows_) {
            Block block;
            block.first_row = first;
            block.rows = std::min(block_rows_, rows - first);
            block.fresh = first == 0;
            for (int l = 0; l < lists; ++l) {
                const int8_t* codes = codes_of(spec, slice, l) + first;
                for (int i = 0; i < block.rows; ++i) {
                    positive[size_t(l)] += codes[i] > 0;
                    negative[size_t(l)] += codes[i] < 0;
                }
                block.fresh |= !fits(positive[size_t(l)], negative[size_t(l)]);
            }
            if (block.fresh) {
                ++slice.chunks;
                for (int l = 0; l < lists; ++l) {
                    const int8_t* codes = codes_of(spec, slice, l) + first;
                    positive[size_t(l)] = int(std::count_if(codes, codes + block.rows, [](int8_t w) { return w > 0; }));
                    negative[size_t(l)] = int(std::count_if(codes, codes + block.rows, [](int8_t w) { return w < 0; }));
                }
            }
            block.chunk = slice.chunks - 1;
            pack_block(spec, slice, block);
        }
        slice.stream.resize(slice.stream.size() + 4);  // positions are read four at a time
    }

    List list_of(const int8_t* codes, int rows, int number) const {
        List list;
        list.number = uint16_t(number);
        for (int i = 0; i < rows; i += GROUP_ROWS) {
            int n = 0;
            for (int r = 0, weight = 1; r < GROUP_ROWS && i + r < rows; ++r, weight *= 3) n += weight * codes[i + r];
            if (n == 0) continue;
            const int row = 1 + i / GROUP_ROWS * GROUP_SUMS + std::abs(n) - 1;
            (n > 0 ? list.adds : list.subs).push_back(uint16_t(row * pitch_ * LANES * int(sizeof(int16_t))));
        }
        return list;
    }

    void pack_block(const ConvSpec& spec, Slice& slice, Block block) const {
        std::vector<List> lists;
        for (int l = 0; l < slice.channels * branches_; ++l) {
            List list = list_of(codes_of(spec, slice, l) + block.first_row, block.rows, l);
            if (block.fresh || !list.adds.empty() || !list.subs.empty()) lists.push_back(std::move(list));
        }
        if (lists.size() % 2) lists.push_back(list_of(nullptr, 0, slice.channels * branches_));  // nobody reads it
        std::stable_sort(lists.begin(), lists.end(), [](const List& a, const List& b) {
            return a.adds.size() != b.adds.size() ? a.adds.size() < b.adds.size() : a.subs.size() < b.subs.size();
        });
        std::vector<std::pair<List, List>> pairs;
        for (size_t i = 0; i < lists.size(); i += 2) {
            List &a = lists[i], &b = lists[i + 1];
            const size_t adds = std::max(a.adds.size(), b.adds.size()), subs = std::max(a.subs.size(), b.subs.size());
            for (List* list : {&a, &b}) {
                list->adds.resize(adds, ZEROS);
                list->subs.resize(subs, ZEROS);
            }
            pairs.emplace_back(std::move(a), std::move(b));
        }
        std::stable_sort(pairs.begin(), pairs.end(), [](const auto& a, const auto& b) {
            const List &x = a.first, &y = b.first;
            return x.adds.size() != y.adds.size() ? x.adds.size() < y.adds.size() : x.subs.size() < y.subs.size();
        });
        block.run = slice.runs.size();
        block.stream = slice.stream.size();
        for (const auto& [a, b] : pairs) {
            const uint16_t adds = uint16_t(a.adds.size()), subs = uint16_t(a.subs.size());
            const bool first = slice.runs.size() == block.run;
            if (first || slice.runs.back().adds != adds || slice.runs.back().subs != subs)
                slice.runs.push_back({adds, subs, 0});
            ++slice.runs.back().pairs;
            slice.stream.insert(slice.stream.end(), {a.number, b.number});
            append_interleaved(a.adds, b.adds, slice.stream);
            append_interleaved(a.subs, b.subs, slice.stream);
        }
        block.runs = slice.runs.size() - block.run;
        slice.blocks.push_back(block);
    }

    void run_slice(const Slice& slice, Span span, const uint8_t** rows, int16_t* table, int16_t* sums,
                   const Planes* out) const {
        const int total = ceil_div(int(span.pixels), LANES), tiles = ceil_div(total, pitch_);
        const size_t row = size_t(pitch_) * LANES, chunk_stride = size_t(slice.channels * branches_ + 1) * row;
        for (int t = 0; t < tiles; ++t) {
            const Range tile = part(total, tiles, t);
            for (const Block& block : slice.blocks) {
                simd_.build_table(rows + block.first_row, block.rows, is_signed_, size_t(tile.begin) * LANES,
                                  tile.size(), pitch_, table + row);
                const Lists lists = {slice.runs.data() + block.run, block.runs, slice.stream.data() + block.stream};
                simd_.add_lists(lists, table, tile.size(), pitch_, block.fresh, sums + size_t(block.chunk) * chunk_stride);
            }
            Finish finish;
            finish.sums = sums;
            finish.stride = row;
            finish.chunks = slice.chunks;
            finish.chunk_stride = chunk_stride;
            finish.channels = slice.channels;
            finish.vectors = tile.size();
            finish.pixel = span.pixel + size_t(tile.begin) * LANES;
            outputs_.write(simd_.finish_i16, finish, slice.first, out);
        }
    }

    const Simd& simd_;
    const Rows rows_;
    const Outputs outputs_;
    const bool is_signed_;
    const int branches_;
    const std::vector<Span> spans_;
    int pitch_ = 0, block_rows_ = 0, parts_ = 1;
    size_t sum_bytes_ = 0;
    std::vector<Slice> slices_;
};

}  // namespace

std::unique_ptr<Op> make_table_conv(const ConvSpec& spec, const Simd& simd, int threads) {
    return std::make_unique<TableConv>(spec, simd, threads);
}

}  // namespace dbq
