// Ternary weights as lists of table rows: what add_lists of simd.h reads.
#pragma once

#include "kernels/isa/simd.h"

namespace dbq::table {

struct Layout {
    int rows = 0;        // of codes: the weights of one sum
    int group_rows = 3;  // or 4
    int block_rows = 0;  // of them in one table; a multiple of group_rows
    int pitch = 0;       // of a table row, in vectors of `lanes` pixels
    int lanes = 0;
    bool is_signed = false;
    int run_cost = 0;  // what branches at the end of a run cost, in pairs of rows
};

// A block fits a chunk whatever its weights are, see fits() in table_lists.cpp.
constexpr int MAX_BLOCK_ROWS = 126;

// The lists of all sums for one table: rows [first_row, first_row + rows).
struct Block {
    int first_row = 0, rows = 0;
    int chunk = 0;       // sums of int16 would overflow: each chunk has its own
    bool fresh = false;  // the first block of its chunk
    size_t run = 0, runs = 0, stream = 0;
};

struct PackedLists {
    int chunks = 0;
    std::vector<Block> blocks;
    std::vector<Run> runs;
    std::vector<uint16_t> stream;

    Lists of(const Block& block) const {
        return {runs.data() + block.run, block.runs, stream.data() + block.stream};
    }
    size_t bytes() const;
};

// codes[l]: the weights of sum l. The table begins with a row of zeros. Where there is an odd number of
// lists, sum number codes.size() is written too.
PackedLists pack_lists(const std::vector<const int8_t*>& codes, const Layout&);

}  // namespace dbq::table
