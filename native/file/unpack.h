// Packed weights to codes. Layouts: "Weights" in docs/format.md.
#pragma once

#include "file/reader.h"

namespace dbq {

// Both throw Error: the values of packed weights are looked at here for the first time.
std::vector<int8_t> unpack_ternary(Bytes packed, size_t count);
std::vector<int8_t> unpack_fixed(Bytes packed, size_t count, int bits);

}  // namespace dbq
