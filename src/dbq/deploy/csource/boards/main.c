/* Runs the test of a network and prints how many ticks of the clock each layer took, and how much stack. */
#include "board.h"

#ifdef __arm__
#define TICK_MASK 0xFFFFFFu
#else
#define TICK_MASK 0xFFFFFFFFu
#endif
#define SPIN 500000u
#define MOST_STEPS 1024u

int NAME_test(void);

extern uint32_t data_load, data_start, data_end, bss_start, bss_end, stack_end;
static uint32_t last, ticks[MOST_STEPS], used;

void board_step(uint32_t step) {
    const uint32_t now = board_clock();
    if (step != 0u && step < MOST_STEPS) {
        ticks[step] = (now - last) & TICK_MASK;
        used = step;
    }
    last = board_clock();
}

static void print(const char *name, uint32_t number) {
    char text[12];
    uint32_t at = 11u;
    text[at] = '\0';
    do {
        text[--at] = (char)('0' + (int)(number % 10u));
        number /= 10u;
    } while (number != 0u);
    board_write(name);
    board_write(" ");
    board_write(&text[at]);
    board_write("\n");
}

void board_begin(void) {
    const uint32_t *from = &data_load;
    for (uint32_t *to = &data_start; to < &data_end; to++) {
        *to = *from++;
    }
    for (uint32_t *to = &bss_start; to < &bss_end; to++) {
        *to = 0u;
    }
    uint32_t mark;
    volatile uint32_t *lowest = &bss_end;
    for (volatile uint32_t *p = lowest; p < &mark - 64; p++) {
        *p = 0xA5A5A5A5u; /* to see how deep the stack gets */
    }
    uint32_t start = board_clock();
    start = board_clock();
    board_spin(SPIN);
    print("spin", (board_clock() - start) & TICK_MASK);
    const int wrong = NAME_test();
    while (*lowest == 0xA5A5A5A5u) {
        lowest++;
    }
    for (uint32_t i = 1u; i <= used; i++) {
        print("step", ticks[i]);
    }
    print("stack", (uint32_t)((uintptr_t)&mark - (uintptr_t)lowest));
    print("wrong", (uint32_t)wrong);
    board_exit(wrong == 0 ? 0 : 1);
}
