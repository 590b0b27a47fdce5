// Which vector kernels to use: a pure function of the processor and of what was asked for.
#pragma once

#include <set>
#include <string>
#include <vector>

namespace dbq {

struct Simd;

// The instruction sets of a processor, by name: {"avx2", "avx512"}. Names nobody has kernels for are ignored.
using Cpu = std::set<std::string>;

Cpu this_cpu();

// The tables of vector kernels that run on `cpu`, best last.
std::vector<const Simd*> usable_simds(const Cpu& cpu);

// The best table for `cpu`, or the one called `wanted` unless that is null or ""; null for plain loops, which
// are called "scalar". Throws Error.
const Simd* choose_simd(const Cpu& cpu, const char* wanted);

const char* isa_name(const Simd* simd);
std::string available_isas(const Cpu& cpu);  // best last, "scalar avx2 avx512"

}  // namespace dbq
