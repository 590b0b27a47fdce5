#include "kernels/cpu.h"

#if defined(__aarch64__) && defined(__linux__)
#include <asm/hwcap.h>
#include <sys/auxv.h>
#endif

#if defined(__wasm_simd128__)
#include "wasm/relaxed.h"
#endif

#include "file/error.h"
#include "kernels/isa/simd.h"

namespace dbq {

Cpu this_cpu() {
    Cpu cpu{"generic"};
#if defined(__x86_64__)
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx2")) cpu.insert("avx2");
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("avx512f") &&
        __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
        __builtin_cpu_supports("avx512vnni"))
        cpu.insert("avx512");
#elif defined(__aarch64__)
    cpu.insert("neon");
#if defined(__linux__)
    if (getauxval(AT_HWCAP) & HWCAP_ASIMDDP) cpu.insert("neon-dot");
    if (cpu.count("neon-dot") && getauxval(AT_HWCAP2) & HWCAP2_I8MM) cpu.insert("neon-i8mm");
#endif
#elif defined(__wasm_simd128__)
    cpu.insert("wasm");
    cpu.insert(relaxed::name());
#endif
    return cpu;
}

// An instruction set is named only if this build has kernels for it: what is reported is what runs.
std::vector<const Simd*> usable_simds(const Cpu& cpu) {
    std::vector<const Simd*> usable;
    for (const Simd* simd : {GENERIC_KERNELS, NEON_KERNELS, NEON_DOT_KERNELS, NEON_I8MM_KERNELS, WASM_KERNELS,
                             WASM_RELAXED_KERNELS, WASM_DOT_KERNELS, AVX2_KERNELS, AVX512_KERNELS})
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
