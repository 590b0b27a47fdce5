// The kinds of operations a file may hold. One file of this folder is all of an operation but its vector
// kernels: its bytes, what is refused, and what it computes, in plain loops.
#pragma once

#include <cstddef>

namespace dbq {

class Parser;
struct Operation;

// Reads and checks what follows the operation's name in the file, and sets what can be known from it.
using Read = void(Parser&, Operation&);
Read read_lookup, read_convolution, read_add, read_requantize, read_average_pool, read_max_pool,
    read_channels, read_curve, read_multiply, read_pixels, read_bilinear, read_mean_pool;

struct Kind {
    const char* name;
    Read* read;
};

// By the numbers of docs/format.md. A lookup must be the first operation, and no other.
constexpr size_t LOOKUP = 0;
constexpr Kind KINDS[] = {
    {"lookup", read_lookup},
    {"convolution", read_convolution},
    {"add", read_add},
    {"requantize", read_requantize},
    {"average pool", read_average_pool},
    {"max pool", read_max_pool},
    {"channels", read_channels},
    {"curve", read_curve},
    {"multiply", read_multiply},
    {"pixels", read_pixels},
    {"bilinear", read_bilinear},
    {"mean pool", read_mean_pool},
};
constexpr size_t KIND_COUNT = sizeof KINDS / sizeof *KINDS;

}  // namespace dbq
