#include "kernels/cpu.h"

#include "file/error.h"

namespace dbq {

namespace {

constexpr Isa LEVELS[] = {Isa::Scalar, Isa::Avx2, Isa::Neon};  // a later one is better

bool has(Cpu cpu, Isa isa) { return isa == Isa::Avx2 ? cpu.avx2 : isa == Isa::Neon ? cpu.neon : true; }

}  // namespace

Cpu this_cpu() {
    Cpu cpu;
#if defined(__x86_64__)
    __builtin_cpu_init();
    cpu.avx2 = __builtin_cpu_supports("avx2");
#elif defined(__aarch64__)
    cpu.neon = true;  // part of the architecture
#endif
    return cpu;
}

const char* isa_name(Isa isa) { return isa == Isa::Avx2 ? "avx2" : isa == Isa::Neon ? "neon" : "scalar"; }

std::string available_isas(Cpu cpu) {
    std::string names;
    for (const Isa isa : LEVELS)
        if (has(cpu, isa)) names += (names.empty() ? "" : " ") + std::string(isa_name(isa));
    return names;
}

Isa choose_isa(Cpu cpu, const char* wanted) {
    const std::string name = wanted ? wanted : "";
    Isa best = Isa::Scalar;
    for (const Isa isa : LEVELS) {
        if (!has(cpu, isa)) continue;
        if (name == isa_name(isa)) return isa;
        best = isa;
    }
    if (!name.empty())
        fail(DBQ_BAD_ISA, "DBQ_ISA is \"%.40s\", this processor has: %s; choose one of these or unset it",
             name.c_str(), available_isas(cpu).c_str());
    return best;
}

}  // namespace dbq
