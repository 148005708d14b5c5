/* The start-up code of a Cortex-M7: stack, floating-point unit, newlib's semihosting (qemu prints and ends for it). */
#include <stdlib.h>

#ifndef BOARD_STACK
#define BOARD_STACK 0x20400000            /* end of the memory */
#endif
int main(void);
void reset(void);
void initialise_monitor_handles(void);
void _init(void);
void _init(void) { }

__attribute__((section(".vectors"), used)) static void (*const vectors[])(void) = {
    (void (*)(void))BOARD_STACK, reset
};

void reset(void)
{
#ifdef __ARM_FP
    *(volatile unsigned *)0xE000ED88 |= 0xFu << 20;           /* CPACR: coprocessors 10 and 11 */
#endif
    __asm__ volatile("dsb\n isb");
    initialise_monitor_handles();
    exit(main());
}
