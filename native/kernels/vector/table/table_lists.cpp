#include "kernels/vector/table/table_lists.h"

#include <algorithm>
#include <cstdint>
#include <cstdlib>

namespace dbq::table {
namespace {

constexpr uint16_t ZEROS = 0;  // position of the row of zeros

struct List {
    uint16_t number = 0;
    std::vector<uint16_t> adds, subs;

    void fill_up(size_t add_count, size_t sub_count) {
        adds.resize(add_count, ZEROS);
        subs.resize(sub_count, ZEROS);
    }
};

// Signs of the weights of one sum in one chunk.
struct Signs {
    int positive = 0, negative = 0;

    void count(const int8_t* codes, int rows) {
        for (int i = 0; i < rows; ++i) {
            positive += codes[i] > 0;
            negative += codes[i] < 0;
        }
    }
    // Sums fit int16. Unsigned codes, 128 positive and 128 negative taps: 255 * 128 < 2^15; signed codes, 255
    // taps: 128 * 255 < 2^15.
    bool fits(bool is_signed) const {
        return is_signed ? positive + negative <= 255 : positive <= 128 && negative <= 128;
    }
};

List list_of(const int8_t* codes, int rows, size_t number, const Layout& layout) {
    List list;
    list.number = uint16_t(number);
    for (int i = 0; i < rows; i += layout.group_rows) {
        int n = 0;  // balanced ternary
        for (int r = 0, digit = 1; r < layout.group_rows && i + r < rows; ++r, digit *= 3)
            n += digit * codes[i + r];
        if (n == 0) continue;
        const int row = 1 + i / layout.group_rows * sums_of_group(layout.group_rows) + std::abs(n) - 1;
        (n > 0 ? list.adds : list.subs)
            .push_back(uint16_t(row * layout.pitch * layout.lanes * int(sizeof(int16_t))));
    }
    return list;
}

// The lists of a run, in order of their lengths: those up to `end`, with so many additions and subtractions.
struct Lengths {
    size_t end = 0, adds = 0, subs = 0;
};

// Cuts lists, sorted by additions, then by subtractions, into runs. Few runs have few branches that are
// predicted wrongly, many have few rows of zeros: the cheapest cut, by dynamic programming over the lengths
// that occur.
std::vector<Lengths> cut_runs(const std::vector<List>& lists, int run_cost) {
    std::vector<Lengths> kinds;
    for (size_t i = 0; i < lists.size(); ++i) {
        const size_t adds = lists[i].adds.size(), subs = lists[i].subs.size();
        if (kinds.empty() || kinds.back().adds != adds || kinds.back().subs != subs)
            kinds.push_back({0, adds, subs});
        kinds.back().end = i + 1;
    }
    std::vector<size_t> cost(kinds.size() + 1, SIZE_MAX), first(kinds.size() + 1);
    cost[0] = 0;
    for (size_t end = 1; end <= kinds.size(); ++end) {
        size_t subs = 0;
        for (size_t begin = end; begin-- > 0;) {
            subs = std::max(subs, kinds[begin].subs);
            const size_t count = kinds[end - 1].end - (begin ? kinds[begin - 1].end : 0);
            const size_t found =
                cost[begin] + (count + 1) / 2 * (kinds[end - 1].adds + subs) + size_t(run_cost);
            if (found < cost[end]) {
                cost[end] = found;
                first[end] = begin;
            }
        }
    }
    std::vector<Lengths> runs;
    for (size_t end = kinds.size(); end > 0; end = first[end]) runs.push_back({kinds[end - 1].end, 0, 0});
    std::reverse(runs.begin(), runs.end());
    size_t begin = 0;
    for (Lengths& run : runs) {
        if ((run.end - begin) % 2) --run.end;  // pairs: the last one goes to the next run
        for (size_t i = begin; i < run.end; ++i) {
            run.adds = std::max(run.adds, lists[i].adds.size());
            run.subs = std::max(run.subs, lists[i].subs.size());
        }
        begin = run.end;
    }
    return runs;
}

// Four of a, four of b, and so on.
void append_interleaved(const std::vector<uint16_t>& a, const std::vector<uint16_t>& b,
                        std::vector<uint16_t>& to) {
    for (size_t i = 0; i < a.size(); i += 4) {
        const size_t end = std::min(i + 4, a.size());
        to.insert(to.end(), a.data() + i, a.data() + end);
        to.insert(to.end(), b.data() + i, b.data() + end);
    }
}

// Lists of similar length become runs, and neighbours pairs. There is an even number of lists.
void append_block(std::vector<List>& lists, Block block, int run_cost, PackedLists& packed) {
    std::stable_sort(lists.begin(), lists.end(), [](const List& x, const List& y) {
        return x.adds.size() != y.adds.size() ? x.adds.size() < y.adds.size() : x.subs.size() < y.subs.size();
    });
    block.run = packed.runs.size();
    block.stream = packed.stream.size();
    size_t begin = 0;
    for (const Lengths& run : cut_runs(lists, run_cost)) {
        if (run.end == begin) continue;
        packed.runs.push_back({uint16_t(run.adds), uint16_t(run.subs), uint32_t(run.end - begin) / 2});
        for (; begin < run.end; begin += 2) {
            List &a = lists[begin], &b = lists[begin + 1];
            a.fill_up(run.adds, run.subs);
            b.fill_up(run.adds, run.subs);
            packed.stream.push_back(a.number);
            packed.stream.push_back(b.number);
            append_interleaved(a.adds, b.adds, packed.stream);
            append_interleaved(a.subs, b.subs, packed.stream);
        }
    }
    block.runs = packed.runs.size() - block.run;
    packed.blocks.push_back(block);
}

}  // namespace

size_t PackedLists::bytes() const {
    return stream.size() * sizeof(uint16_t) + runs.size() * sizeof(Run) + blocks.size() * sizeof(Block);
}

PackedLists pack_lists(const std::vector<const int8_t*>& codes, const Layout& layout) {
    PackedLists packed;
    std::vector<Signs> signs(codes.size());
    for (int first = 0; first < layout.rows; first += layout.block_rows) {
        Block block;
        block.first_row = first;
        block.rows = std::min(layout.block_rows, layout.rows - first);
        block.fresh = first == 0;
        for (size_t l = 0; l < codes.size(); ++l) {
            signs[l].count(codes[l] + first, block.rows);
            block.fresh |= !signs[l].fits(layout.is_signed);
        }
        if (block.fresh) {
            ++packed.chunks;
            for (size_t l = 0; l < codes.size(); ++l) {
                signs[l] = {};
                signs[l].count(codes[l] + first, block.rows);
            }
        }
        block.chunk = packed.chunks - 1;
        std::vector<List> lists;
        for (size_t l = 0; l < codes.size(); ++l) {
            List list = list_of(codes[l] + first, block.rows, l, layout);
            if (block.fresh || !list.adds.empty() || !list.subs.empty()) lists.push_back(std::move(list));
        }
        if (lists.size() % 2) lists.push_back(list_of(nullptr, 0, codes.size(), layout));
        append_block(lists, block, layout.run_cost, packed);
    }
    packed.stream.resize(packed.stream.size() + 4);  // positions are read four at a time
    return packed;
}

}  // namespace dbq::table
