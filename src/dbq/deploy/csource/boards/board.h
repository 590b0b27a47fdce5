/* What a board gives to main.c. */
#ifndef BOARD_H
#define BOARD_H

#include <stdint.h>

void board_begin(void); /* clears and fills RAM, then runs the test; main.c */
void board_write(const char *text);
void board_exit(int status);
uint32_t board_clock(void);        /* ticks; BOARD_TICK_BITS of them count */
void board_spin(uint32_t rounds); /* two instructions a round */

#endif
