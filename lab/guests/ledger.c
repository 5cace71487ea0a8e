/* A controller whose answers are a hash of its argument, its prompt and all its inputs. lab/campaigns/ledger.py
 * computes the same hash, and so detects an answer, a row, a variable or a log of another sequence. The argument is
 * "<key> <forks>", both numbers. */
#include <aici.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

AICI_CONTROLLER

enum { MOST_TOKENS = 1 << 12 };

static aici_step_arg arg = {sizeof arg};
static aici_pre_result pre = {sizeof pre};
static aici_mid_result mid;
static const aici_vocabulary_header *vocabulary;
static uint32_t key, forks, hash, owner, has_row;
static uint32_t mask[MOST_TOKENS / 32], tokens[MOST_TOKENS];
static float dense[MOST_TOKENS];
static aici_bias sparse[2];

static uint32_t mix(uint32_t h, uint32_t x) {
    h = (h ^ x) * 0x9e3779b1u;
    return h ^ h >> 15;
}

static void fold(uint32_t x) { hash = mix(hash, x); }

static uint32_t pick(uint32_t h) { return 1 + h % 200; }

AICI_EXPORT(aici_arg) aici_step_arg *aici_arg(void) { return &arg; }

AICI_EXPORT(aici_init) int aici_init(uint32_t len) {
    char text[80] = {0};
    aici_read(AICI_ARG, 0, text, sizeof text - 1);
    vocabulary = aici_vocabulary();
    if (sscanf(text, "%u %u", &key, &forks) != 2 || vocabulary->vocab_size > MOST_TOKENS) return 1;
    const uint32_t *offsets = aici_section(vocabulary, vocabulary->token_offsets);
    const uint8_t *bytes = aici_section(vocabulary, vocabulary->token_bytes);
    fold(key);
    fold(vocabulary->vocab_size);
    fold(bytes[offsets[pick(key)]]);
    return len >= sizeof text;
}

AICI_EXPORT(aici_init_prompt) int aici_init_prompt(uint32_t n) {
    if (n > MOST_TOKENS) return 1;
    aici_read(AICI_PROMPT, 0, tokens, 4 * n);
    for (uint32_t i = 0; i < n; i++) fold(tokens[i]);
    owner = hash;
    aici_var_write("owner", 5, &owner, sizeof owner, AICI_SET, AICI_ANY_VERSION);
    return 0;
}

AICI_EXPORT(aici_pre_process) aici_pre_result *aici_pre_process(void) {
    uint32_t n = aici_read(AICI_TOKENS, 0, tokens, sizeof tokens) / 4;
    fold(arg.step);
    fold(arg.backtrack);
    for (uint32_t i = 0; i < n; i++) fold(tokens[i]);
    pre.verb = AICI_CONTINUE;
    if (forks && (hash >> 20 & 31) == 0) {
        forks--;
        pre.verb = AICI_FORK;
        pre.num_forks = 2 + (hash >> 25 & 1);
    }
    return &pre;
}

static void sample(uint32_t kind, uint32_t row, uint32_t len) {
    mid = (aici_mid_result){.size = sizeof mid, .verb = AICI_SAMPLE, .row_kind = kind, .row = row, .row_len = len};
}

AICI_EXPORT(aici_mid_process) aici_mid_result *aici_mid_process(void) {
    uint32_t found = 0;
    aici_var_get("owner", 5, 0);
    aici_read(AICI_VALUE, 0, &found, sizeof found);
    if (found != owner) aici_fail("a variable of another request", 29);
    for (uint32_t i = 0; arg.num_group > 1 && i < arg.num_group; i++)
        if (arg.group[i] == arg.seq_id) fold(i + 1);
    if (arg.step % 8 == 0) printf("%08x %08x\n", (unsigned)key, (unsigned)hash);

    uint32_t kind = hash >> 8 & 15, rare = hash >> 12 & 15;
    if (kind == 3) { /* backtracks one token every other time */
        tokens[0] = pick(hash);
        tokens[1] = pick(hash >> 5);
        mid = (aici_mid_result){.size = sizeof mid, .verb = AICI_SPLICE, .backtrack = hash & 1 && arg.step > 4,
                                .ff_tokens = (uint32_t)(uintptr_t)tokens, .num_ff_tokens = 2};
    } else if (kind == 15 && rare < 2) {
        mid = (aici_mid_result){.size = sizeof mid, .verb = AICI_STOP};
    } else if (kind == 14 && rare == 0) {
        char text[40];
        aici_fail(text, (uint32_t)snprintf(text, sizeof text, "failed as told: %08x", (unsigned)hash));
    } else if (kind == 5) {
        sample(AICI_ROW_TOKEN, pick(hash), 0);
    } else if (kind == 6) {
        sparse[0] = (aici_bias){pick(hash), 0.5f};
        sparse[1] = (aici_bias){pick(hash >> 5), -1.0f};
        sample(AICI_ROW_SPARSE, (uint32_t)(uintptr_t)sparse, 2);
        mid.row_default = -INFINITY;
    } else if (kind == 7) {
        for (uint32_t i = 0; i < vocabulary->vocab_size; i++) dense[i] = (float)(hash + i & 0xff);
        sample(AICI_ROW_DENSE, (uint32_t)(uintptr_t)dense, vocabulary->vocab_size);
    } else if (kind == 8 && has_row) {
        sample(AICI_ROW_SAME, 0, 0);
    } else if (kind == 9) {
        sample(AICI_ROW_ALL, 0, 0);
    } else {
        for (uint32_t i = 0; i < vocabulary->mask_words; i++) mask[i] = mix(hash, i);
        mask[0] |= 2;
        sample(AICI_ROW_BITMASK, (uint32_t)(uintptr_t)mask, vocabulary->mask_words);
    }
    has_row |= mid.verb == AICI_SAMPLE;
    return &mid;
}
