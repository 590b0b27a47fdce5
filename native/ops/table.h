// The kinds of operations a file may hold. One file of this folder is all of an operation but its vector
// kernels: its bytes, what is refused, and what it computes, in plain loops.
#pragma once

#include <cstddef>

namespace dbq {

class Parser;
struct Operation;

struct Kind {
    const char* name;
    // Reads and checks what follows the operation's name in the file, and sets what can be known from it.
    void (*read)(Parser&, Operation&);
};

// By the numbers of docs/format.md.
extern const Kind KINDS[];
extern const size_t KIND_COUNT;
constexpr size_t LOOKUP = 0;  // must be the first operation, and no other

}  // namespace dbq
