// Where activations live: tensors that are never needed at the same time share memory.
#pragma once

#include <cstddef>
#include <vector>

namespace dbq {

// A tensor's memory, needed from step `first` to step `last`, both included.
struct Block {
    size_t bytes = 0;
    int first = 0, last = 0;
    size_t offset = 0;  // set by plan_arena
};

// Sets the offsets so that blocks needed at the same time do not overlap, and returns the total size.
// Sizes must be multiples of the alignment that offsets need.
size_t plan_arena(std::vector<Block>& blocks);

}  // namespace dbq
