#include "engine/arena.h"

#include <algorithm>
#include <cstdint>
#include <numeric>

namespace dbq {

namespace {

bool together(const Block& a, const Block& b) { return a.first <= b.last && b.first <= a.last; }

// The smallest gap between `placed` blocks, sorted by offset, that holds `block`; else the end.
size_t best_gap(const Block& block, const std::vector<const Block*>& placed) {
    size_t best = 0, best_size = SIZE_MAX, end = 0;
    for (const Block* other : placed) {
        if (!together(block, *other)) continue;
        if (other->offset > end) {
            const size_t size = other->offset - end;
            if (size >= block.bytes && size < best_size) best = end, best_size = size;
        }
        end = std::max(end, other->offset + other->bytes);
    }
    return best_size == SIZE_MAX ? end : best;
}

}  // namespace

// Largest first, each into the smallest gap that holds it: large blocks determine the total, small ones fit
// in.
size_t plan_arena(std::vector<Block>& blocks) {
    std::vector<size_t> order(blocks.size());
    std::iota(order.begin(), order.end(), size_t{0});
    std::stable_sort(order.begin(), order.end(),
                     [&](size_t a, size_t b) { return blocks[a].bytes > blocks[b].bytes; });
    std::vector<const Block*> placed;
    size_t total = 0;
    for (const size_t index : order) {
        Block& block = blocks[index];
        block.offset = best_gap(block, placed);
        total = std::max(total, block.offset + block.bytes);
        const auto after = std::upper_bound(placed.begin(), placed.end(), &block,
                                            [](auto* a, auto* b) { return a->offset < b->offset; });
        placed.insert(after, &block);
    }
    return total;
}

}  // namespace dbq
