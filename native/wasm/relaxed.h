// Relaxed dot products, which not every browser has. A module with one such instruction is refused as a whole
// where they are missing, so their loops (relaxed.cpp) are a module of their own, inside of a section of
// dbq.wasm that only hosts read: web/dbq.js.
#pragma once

#include "kernels/isa/simd.h"

namespace dbq::relaxed {

// Adds the products of channels [first, first + count) of the job to sums[channel - first][16 pixels].
using Multiply = void (*)(const quads::Job&, int first, int count, int32_t* sums);

// What the instruction is on this processor, as `dbq_relaxed_kind` finds out.
enum Kind {
    SLOW = 0,   // several instructions: the table of sums is faster
    WORDS = 1,  // products of bytes, added in pairs of 16 bits: SSSE3
    DOT = 2,    // a dot product in 32 bits: DotProd on ARM, AVX-VNNI
};

const char* name();  // of the kernels of the kind in use

}  // namespace dbq::relaxed

// Exported to hosts: loads of networks from now on use `multiply` of that kind.
extern "C" void dbq_use_relaxed(dbq::relaxed::Kind, dbq::relaxed::Multiply multiply);
