#include "kernels/cpu.h"

#include "file/error.h"
#include "kernels/isa/simd.h"

namespace dbq {

Cpu this_cpu() {
    Cpu cpu;
#if defined(__x86_64__)
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx2")) cpu.insert("avx2");
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("avx512f") &&
        __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
        __builtin_cpu_supports("avx512vnni"))
        cpu.insert("avx512");
#endif
    return cpu;
}

// An instruction set is named only if this build has kernels for it: what is reported is what runs.
std::vector<const Simd*> usable_simds(const Cpu& cpu) {
    std::vector<const Simd*> usable;
    for (const Simd* simd : {AVX2_KERNELS, AVX512_KERNELS})
        if (simd && cpu.count(simd->name)) usable.push_back(simd);
    return usable;
}

const char* isa_name(const Simd* simd) { return simd ? simd->name : "scalar"; }

std::string available_isas(const Cpu& cpu) {
    std::string names = isa_name(nullptr);
    for (const Simd* simd : usable_simds(cpu)) names += std::string(" ") + simd->name;
    return names;
}

const Simd* choose_simd(const Cpu& cpu, const char* wanted) {
    const std::string name = wanted ? wanted : "";
    const Simd* best = nullptr;
    if (name == isa_name(best)) return best;
    for (const Simd* simd : usable_simds(cpu)) {
        best = simd;
        if (name == simd->name) return best;
    }
    if (!name.empty())
        fail(DBQ_BAD_ISA, "DBQ_ISA is \"%.40s\", this processor has: %s; choose one of these or unset it",
             name.c_str(), available_isas(cpu).c_str());
    return best;
}

}  // namespace dbq
