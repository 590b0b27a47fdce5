// Where each plane of each tensor is in the arena.
#pragma once

#include "file/program.h"

namespace dbq {

struct Layout {
    size_t bytes = 0;                         // of the arena
    std::vector<std::vector<size_t>> planes;  // [tensor][channel]: offset in the arena
    size_t zeros = 0, zero_bytes = 0;         // the plane that all zero channels share; never written
};

// For kernels with vectors of `lanes` pixels. Throws Error if more than `limit` bytes would be needed.
Layout lay_out(const Program& program, size_t lanes, uint64_t limit);

void check_memory(size_t bytes, uint64_t limit);

}  // namespace dbq
