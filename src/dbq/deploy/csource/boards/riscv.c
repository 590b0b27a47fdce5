/* Reset, semihosting and a clock for 32-bit RISC-V processors in QEMU. */
#include "board.h"

__asm__(".option arch, +zicsr\n.section .vectors, \"ax\"\n.globl reset\nreset:\n la sp, stack_end\n la t0, trap\n csrw mtvec, t0\n"
        " tail board_begin\n.balign 4\ntrap:\n tail board_trap\n.text\n");

__attribute__((used)) void board_trap(void) {
    board_write("fault\n");
    board_exit(3);
}

static int32_t call(uint32_t what, const void *argument) {
    register uint32_t a0 __asm__("a0") = what;
    register const void *a1 __asm__("a1") = argument;
    __asm__ volatile(".option push\n.option norvc\n.balign 16\n slli x0, x0, 0x1f\n ebreak\n srai x0, x0, 7\n"
                     ".option pop\n" : "+r"(a0) : "r"(a1) : "memory");
    return (int32_t)a0;
}

void board_write(const char *text) { (void)call(0x04u, text); }

void board_exit(int status) {
    const uint32_t block[2] = {0x20026u, (uint32_t)status};
    (void)call(0x20u, block);
    for (;;) {
    }
}

uint32_t board_clock(void) {
    uint32_t count;
    __asm__ volatile(".option push\n.option arch, +zicsr\n csrr %0, minstret\n.option pop" : "=r"(count));
    return count;
}

void board_spin(uint32_t rounds) {
    __asm__ volatile("1: addi %0, %0, -1\n bnez %0, 1b\n" : "+r"(rounds));
}
