/* Reset, semihosting and a clock for Cortex-M processors in QEMU. */
#include "board.h"

static void fault(void) {
    board_write("fault\n");
    board_exit(3);
}

__attribute__((used)) void reset(void) { board_begin(); }

extern uint32_t stack_end;
__attribute__((section(".vectors"), used)) static const void *const vectors[16] = {
    &stack_end, (const void *)reset, (const void *)fault, (const void *)fault, (const void *)fault,
    (const void *)fault, (const void *)fault,
};

static int32_t call(uint32_t what, const void *argument) {
    register uint32_t r0 __asm__("r0") = what;
    register const void *r1 __asm__("r1") = argument;
    __asm__ volatile("bkpt 0xab" : "+r"(r0) : "r"(r1) : "memory");
    return (int32_t)r0;
}

void board_write(const char *text) { (void)call(0x04u, text); }

void board_exit(int status) {
    const uint32_t block[2] = {0x20026u, (uint32_t)status};
    (void)call(0x20u, block);
    for (;;) {
    }
}

#define SYST_CSR (*(volatile uint32_t *)0xE000E010u)
#define SYST_RVR (*(volatile uint32_t *)0xE000E014u)
#define SYST_CVR (*(volatile uint32_t *)0xE000E018u)

uint32_t board_clock(void) {
    if ((SYST_CSR & 1u) == 0u) {
        SYST_RVR = 0xFFFFFFu;
        SYST_CVR = 0u;
        SYST_CSR = 5u; /* the clock of the processor, no interrupt */
    }
    return 0xFFFFFFu - SYST_CVR;
}

void board_spin(uint32_t rounds) {
    __asm__ volatile(".syntax unified\n1: subs %0, %0, #1\n bne 1b\n" : "+l"(rounds) : : "cc");
}
