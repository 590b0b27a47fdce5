// Which kernels to use: a pure function of the processor and of what was asked for.
#pragma once

#include <string>

#include "kernels/op.h"

namespace dbq {

struct Cpu {
    bool avx2 = false, neon = false;
};

Cpu this_cpu();

// The best level of `cpu`, or the level called `wanted` unless that is null or "". Throws Error.
Isa choose_isa(Cpu cpu, const char* wanted);

const char* isa_name(Isa isa);
std::string available_isas(Cpu cpu);  // best last, "scalar avx2"

}  // namespace dbq
