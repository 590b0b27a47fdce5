// Operations that compute one float for each element, which the formula then makes codes of.
#pragma once

#include "kernels/vector/outputs.h"

namespace dbq::vec {

// So many pixels at a time: their floats stay in the first-level cache. A multiple of any number of lanes.
constexpr size_t TILE = 2048;

constexpr double LARGEST_VALUE = double(uint64_t{1} << 60);  // docs/format.md

// Writes n floats, those of pixels [pixel, pixel + n) of a channel, to all outputs. In whole vectors.
void write_values(const Simd& simd, const Outputs& outputs, const float* v, size_t n, int channel,
                  size_t pixel, const Planes* out);

}  // namespace dbq::vec
