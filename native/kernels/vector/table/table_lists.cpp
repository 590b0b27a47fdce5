#include "kernels/vector/table/table_lists.h"

#include <algorithm>
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

// Numbers of lists, or of pairs of them, by additions, then subtractions.
void sort_by_length(std::vector<size_t>& numbers, const std::vector<List>& lists) {
    std::stable_sort(numbers.begin(), numbers.end(), [&](size_t a, size_t b) {
        const List &x = lists[a], &y = lists[b];
        return x.adds.size() != y.adds.size() ? x.adds.size() < y.adds.size() : x.subs.size() < y.subs.size();
    });
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

// Lists of similar length become pairs, pairs of equal length become runs.
void append_block(std::vector<List>& lists, Block block, PackedLists& packed) {
    std::vector<size_t> order(lists.size()), firsts, partner(lists.size());
    for (size_t i = 0; i < order.size(); ++i) order[i] = i;
    sort_by_length(order, lists);
    for (size_t i = 0; i < order.size(); i += 2) {
        List &a = lists[order[i]], &b = lists[order[i + 1]];
        const size_t adds = std::max(a.adds.size(), b.adds.size()),
                     subs = std::max(a.subs.size(), b.subs.size());
        a.fill_up(adds, subs);
        b.fill_up(adds, subs);
        firsts.push_back(order[i]);
        partner[order[i]] = order[i + 1];
    }
    sort_by_length(firsts, lists);
    block.run = packed.runs.size();
    block.stream = packed.stream.size();
    for (const size_t first : firsts) {
        const List &a = lists[first], &b = lists[partner[first]];
        const uint16_t adds = uint16_t(a.adds.size()), subs = uint16_t(a.subs.size());
        const bool new_run = packed.runs.size() == block.run || packed.runs.back().adds != adds ||
                             packed.runs.back().subs != subs;
        if (new_run) packed.runs.push_back({adds, subs, 0});
        ++packed.runs.back().pairs;
        packed.stream.push_back(a.number);
        packed.stream.push_back(b.number);
        append_interleaved(a.adds, b.adds, packed.stream);
        append_interleaved(a.subs, b.subs, packed.stream);
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
        append_block(lists, block, packed);
    }
    packed.stream.resize(packed.stream.size() + 4);  // positions are read four at a time
    return packed;
}

}  // namespace dbq::table
