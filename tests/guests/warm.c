/* A guest with a table that aici_warm fills ahead. It prints which entries it found filled.
 *
 * The argument is a letter and a number n. The letter selects the action of aici_warm after n calls:
 *   d done: the table is full        f fails        t traps       l loops forever
 *   s stops                          r returns 7    p changes one more page in each call, forever
 *   m takes a few milliseconds in each call, forever
 * Each of the first n calls fills one entry. mid_process fills the next entry if it is missing, and prints "hit" or
 * "miss". */
#include <aici.h>
#include <stdio.h>
#include <stdlib.h>

AICI_CONTROLLER

static aici_step_arg arg = {sizeof(aici_step_arg)};
static aici_mid_result mid;
static char kind = 'd';
static int limit, warmed, asked;
static char table[1000];
static volatile char pages[16 << 20];

AICI_EXPORT(aici_arg) aici_step_arg *aici_arg(void) { return &arg; }

AICI_EXPORT(aici_init) int aici_init(uint32_t size) {
    char text[32] = {0};
    aici_read(AICI_ARG, 0, text, size < 31 ? size : 31);
    kind = text[0];
    limit = atoi(text + 1);
    return 0;
}

AICI_EXPORT(aici_warm) int aici_warm(void) {
    printf("nobody reads this\n");
    if (warmed < limit) {
        table[warmed++] = 1;
        return 1;
    }
    switch (kind) {
    case 'd': return 0;
    case 'f': aici_fail("not today", 9);
    case 't': __builtin_trap();
    case 'l': for (;;) __asm__ volatile("");
    case 's': aici_stop();
    case 'r': return 7;
    case 'p':
        pages[4096 * (warmed++ % 4096)] = 1;
        return 1;
    case 'm':
        for (volatile int i = 0; i < 3000000; i++) continue;
        warmed++;
        return 1;
    }
    return 0;
}

AICI_EXPORT(aici_mid_process) aici_mid_result *aici_mid_process(void) {
    int hit = table[asked];
    table[asked++] = 1;
    printf("%s\n", hit ? "hit" : "miss");
    mid = (aici_mid_result){.size = sizeof mid, .verb = AICI_SAMPLE, .row_kind = AICI_ROW_ALL};
    return &mid;
}
