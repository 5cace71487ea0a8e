/* A guest that finds entries of a table, reports them and learns them. mid_process looks up the entry of the first new
 * token, finds it if it is missing, and prints "hit" or "miss".
 *
 * The argument is a letter, which selects the action of aici_found:
 *   r reports what it has found    f fails    t traps    l loops forever    h reports too many bytes
 *   o reports bytes outside the memory    s reports a struct that is too short
 *   w reports, and aici_warm then traps */
#include <aici.h>
#include <stdio.h>

AICI_CONTROLLER

static aici_step_arg arg = {sizeof(aici_step_arg)};
static aici_mid_result mid;
static aici_found_result result;
static char kind;
static unsigned char table[256], found[256];
static uint32_t num_found;

AICI_EXPORT(aici_arg) aici_step_arg *aici_arg(void) { return &arg; }

AICI_EXPORT(aici_init) int aici_init(uint32_t size) {
    (void)size;
    aici_read(AICI_ARG, 0, &kind, 1);
    return 0;
}

AICI_EXPORT(aici_warm) int aici_warm(void) {
    unsigned char learn[256];
    uint32_t size = aici_read(AICI_FOUND, 0, learn, sizeof learn);
    if (size && kind == 'w') __builtin_trap();
    for (uint32_t i = 0; i < size && i < sizeof learn; i++) table[learn[i]] = 1;
    return 0;
}

AICI_EXPORT(aici_found) aici_found_result *aici_found(void) {
    result = (aici_found_result){sizeof result, (uint32_t)found, num_found};
    switch (kind) {
    case 'f': aici_fail("not today", 9);
    case 't': __builtin_trap();
    case 'l': for (;;) __asm__ volatile("");
    case 'h': result.data_len = 1 << 20; break;
    case 'o': result.data = 0xfffffff0; break;
    case 's': result.size = 4; break;
    }
    return &result;
}

AICI_EXPORT(aici_mid_process) aici_mid_result *aici_mid_process(void) {
    uint32_t entry = arg.num_tokens ? arg.tokens[0] & 255 : 0;
    printf("%s\n", table[entry] ? "hit" : "miss");
    if (!table[entry]) found[num_found++] = (unsigned char)entry;
    table[entry] = 1;
    if (entry == 99) aici_fail("99", 2);
    mid = (aici_mid_result){.size = sizeof mid, .verb = entry == 98 ? AICI_STOP : AICI_SAMPLE, .row_kind = AICI_ROW_ALL};
    return &mid;
}
