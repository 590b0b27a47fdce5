// Small integers as sums of ternary branches times whole numbers, so that the table of sums serves them.
#pragma once

#include "ops/specs.h"

namespace dbq::table {

constexpr int FACTORS = 4;  // for each kernel; the last one is 0

struct Split {
    int branches = 0;              // 2 or 3; 0: some kernel needs more
    std::vector<int8_t> codes;     // [branch][kernel][tap], in {-1, 0, 1}
    std::vector<int16_t> factors;  // [kernel][FACTORS]
};

int branches_of(const ConvSpec&);  // of the split
Split split(const ConvSpec&);

}  // namespace dbq::table
