/* A controller of a given size: the argument is the MiB of memory that aici_init fills. aici_init_prompt then changes
 * 64 KiB of it, in four places, so that a sequence differs from the snapshot as if it had run for a while. */
#include <aici.h>
#include <stdlib.h>

AICI_CONTROLLER

enum { PAGE = 4096, PIECES = 4, PAGES_OF_PIECE = 4, MIB = 1 << 20 };

static aici_step_arg arg = {sizeof(aici_step_arg)};
static aici_mid_result mid = {sizeof(aici_mid_result)};
static char *memory;
static size_t size_of_memory;

AICI_EXPORT(aici_arg) aici_step_arg *aici_arg(void) { return &arg; }

AICI_EXPORT(aici_init) int aici_init(uint32_t size) {
    char text[16] = {0};
    if (size == 0 || size >= sizeof text) return 1;
    aici_read(AICI_ARG, 0, text, sizeof text - 1);
    /* the argument is the size of the whole memory, of which stack, static data and allocator take 128 KiB */
    size_of_memory = (size_t)atoi(text) * MIB - (128 << 10);
    if (!(memory = malloc(size_of_memory))) return 1;
    for (size_t at = 0; at < size_of_memory; at += PAGE) memory[at] = 1;
    return 0;
}

AICI_EXPORT(aici_init_prompt) int aici_init_prompt(uint32_t size) {
    (void)size;
    for (size_t piece = 0; piece < PIECES; piece++)
        for (size_t page = 0; page < PAGES_OF_PIECE; page++)
            memory[size_of_memory / PIECES * piece + page * PAGE] = 2;
    return 0;
}

AICI_EXPORT(aici_mid_process) const aici_mid_result *aici_mid_process(void) {
    mid.verb = AICI_SAMPLE;
    mid.row_kind = AICI_ROW_ALL;
    return &mid;
}
