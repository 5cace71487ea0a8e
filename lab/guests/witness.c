/* A well-behaved controller whose answers depend on its whole history: its argument, its prompt, all tokens, its random
 * numbers, its variables, the vocabulary image, and a part of its memory that only it may change. Interference by
 * another sequence changes its masks and its log. In the fourth step it forks. */
#include <aici.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

AICI_CONTROLLER

enum { CELLS = 1 << 14, MOST_WORDS = 8192, FORK_STEP = 4 };

static aici_step_arg arg = {sizeof(aici_step_arg)};
static aici_post_result post = {sizeof post, AICI_CONTINUE};
static aici_pre_result pre = {sizeof pre, AICI_CONTINUE, 1};
static aici_mid_result mid = {sizeof mid};
static uint32_t mask[MOST_WORDS];
static uint32_t cells[CELLS];
static uint32_t state = 2166136261u, written, version;
static int branch;

static void mix(uint32_t value) { state = (state ^ value) * 16777619u + 0x9e3779b9u; }

static void mix_all(const void *data, uint32_t size) {
    for (uint32_t i = 0; i < size; i++) mix(((const uint8_t *)data)[i]);
}

/* Each step writes the next 16 cells, cyclically: write number n sets cell n % CELLS to n * 3 + 1. Cells that have not
 * been written hold a pattern. */
static uint32_t expected_at(uint32_t at) {
    if (at >= written) return ~at;
    uint32_t last = written - 1;
    return (last - (last - at) % CELLS) * 3u + 1u;
}

static void check_cells(void) {
    for (uint32_t i = 0; i < 256; i++) {
        uint32_t at = (state + i * 97u) % CELLS;
        if (cells[at] != expected_at(at)) aici_fail("a cell has changed", 18);
        mix(cells[at]);
    }
    for (uint32_t end = written + 16; written < end; written++) cells[written % CELLS] = written * 3u + 1u;
}

static void share(void) {
    char name[8];
    uint32_t len = (uint32_t)snprintf(name, sizeof name, "w%d", branch), size = 0, value[2] = {0, 0};
    if (aici_var_get(name, len, &size) != version || size != (version ? 8u : 0u)) aici_fail("a variable has changed", 22);
    aici_read(AICI_VALUE, 0, value, sizeof value);
    mix(value[0]);
    value[0] = state;
    version = aici_var_write(name, len, value, sizeof value, AICI_SET, version);
    if (!version) aici_fail("a variable was written", 22);
}

AICI_EXPORT(aici_arg) aici_step_arg *aici_arg(void) { return &arg; }

AICI_EXPORT(aici_init) int aici_init(uint32_t size) {
    char text[256];
    if (size > sizeof text) return 1;
    aici_read(AICI_ARG, 0, text, size);
    mix_all(text, size);
    for (uint32_t i = 0; i < CELLS; i++) cells[i] = ~i;
    printf("witness %08x\n", state);
    return 0;
}

AICI_EXPORT(aici_init_prompt) int aici_init_prompt(uint32_t count) {
    uint32_t *prompt = malloc(4 * count + 4);
    aici_read(AICI_PROMPT, 0, prompt, 4 * count);
    mix_all(prompt, 4 * count);
    free(prompt);
    uint32_t count_of = aici_tokenize("the cat sat on the mat", 22), tokens[32];
    aici_read(AICI_TOKENIZED, 0, tokens, sizeof tokens);
    for (uint32_t i = 0; i < count_of && i < 32; i++) mix(tokens[i]);
    return 0;
}

AICI_EXPORT(aici_post_process) const aici_post_result *aici_post_process(void) {
    mix(arg.backtrack);
    for (uint32_t i = 0; i < arg.num_tokens && i < AICI_INLINE_TOKENS; i++) mix(arg.tokens[i]);
    return &post;
}

AICI_EXPORT(aici_pre_process) const aici_pre_result *aici_pre_process(void) {
    check_cells();
    pre.verb = arg.step == FORK_STEP ? AICI_FORK : AICI_CONTINUE;
    pre.num_forks = arg.step == FORK_STEP ? 2 : 1;
    return &pre;
}

AICI_EXPORT(aici_mid_process) const aici_mid_result *aici_mid_process(void) {
    const aici_vocabulary_header *vocabulary = aici_vocabulary();
    const uint32_t *text = aici_section(vocabulary, vocabulary->text_mask);
    const uint8_t *bytes = aici_section(vocabulary, vocabulary->token_bytes);
    if (arg.step == FORK_STEP) {
        branch = arg.seq_id != arg.group[0];
        version = branch ? 0 : version;
        mix((uint32_t)branch);
        mix(arg.num_group);
    }
    if (arg.step < FORK_STEP) { /* seeds of forks differ between runs */
        uint32_t random;
        arc4random_buf(&random, sizeof random);
        mix(random);
    }
    share();
    mix(arg.step);
    uint32_t words = vocabulary->mask_words < MOST_WORDS ? vocabulary->mask_words : MOST_WORDS;
    for (uint32_t i = 0; i < words; i++) {
        mix(text[i]);
        mix(bytes[i]);
        mask[i] = state & text[i];
    }
    mask[2] |= 1u << (state & 31); /* at least one of the bytes 64 to 95 */
    printf("step %u of branch %d: %08x\n", arg.step, branch, state);
    mid = (aici_mid_result){.size = sizeof mid, .verb = AICI_SAMPLE, .row_kind = AICI_ROW_BITMASK,
                            .row = (uint32_t)(uintptr_t)mask, .row_len = words};
    return &mid;
}
