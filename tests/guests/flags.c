/* A controller whose results have flags. Its argument is a list of entries, one for each mid_process, the last one for
 * all that follow. An entry is a character for the answer, and the flags as a digit, or as a later character of ASCII (@: 16).
 *
 *   a any token      m the previous row   e the end token in a row   k any token, and requests the top 2
 *   s splices "x"    d splices the end token     b backtracks one token and splices "x"
 *   n splices nothing   x stops   l computes for long, then any token
 *   f any token, and the next pre_process forks   w any token, and the next pre_process suspends
 *   o any token, in a result of 44 bytes, without flags   z the same at the end of the memory
 *
 * With "#<seed>" the answers depend on the whole history. With "+<seed>" they are the same, with flags that skip
 * callbacks which these answers do not need. Every call prints its name and the step. MID_ONLY exports no other
 * callback, so there is nothing to skip. */
#include <aici.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

AICI_CONTROLLER

enum { OLD_SIZE = 44 };

static aici_step_arg arg = {sizeof arg};
static aici_mid_result mid;
static char script[256];
static uint32_t at, end, tokens[64], observed, hash, mood, next_pre = AICI_CONTINUE, forks, suspends, has_row;
static uint32_t mask[1024], slow = 1;
static volatile uint32_t sink;
static const aici_vocabulary_header *vocabulary;

static void fold(uint32_t x) {
    hash = (hash ^ x) * 0x9e3779b1u;
    hash ^= hash >> 15;
}

/* Reads the tokens of a step, in the first callback of the step. */
static void observe(void) {
    if (observed == arg.step) return;
    observed = arg.step;
    uint32_t n = aici_read(AICI_TOKENS, 0, tokens, sizeof tokens) / 4;
    fold(arg.backtrack);
    for (uint32_t i = 0; i < n && i < 64; i++) fold(tokens[i]);
}

AICI_EXPORT(aici_arg) aici_step_arg *aici_arg(void) { return &arg; }

AICI_EXPORT(aici_init) int aici_init(uint32_t len) {
    aici_read(AICI_ARG, 0, script, sizeof script - 1);
    vocabulary = aici_vocabulary();
    end = *(const uint32_t *)aici_section(vocabulary, vocabulary->eos);
    mood = hash = (uint32_t)atoi(script + 1);
    return len >= sizeof script;
}

#ifndef MID_ONLY
static aici_pre_result pre = {sizeof pre};
static aici_post_result post = {sizeof post, AICI_CONTINUE};

AICI_EXPORT(aici_post_process) aici_post_result *aici_post_process(void) {
    printf("post %u\n", arg.step);
    observe();
    return &post;
}

AICI_EXPORT(aici_pre_process) aici_pre_result *aici_pre_process(void) {
    printf("pre %u\n", arg.step);
    observe();
    pre.verb = next_pre;
    pre.num_forks = 2;
    next_pre = AICI_CONTINUE;
    return &pre;
}
#endif

static void sample(uint32_t kind, uint32_t row, uint32_t len) {
    mid.verb = AICI_SAMPLE;
    mid.row_kind = kind;
    mid.row = row;
    mid.row_len = len;
}

static void splice(uint32_t backtrack, uint32_t token, uint32_t n) {
    tokens[0] = token;
    mid.verb = AICI_SPLICE;
    mid.backtrack = backtrack;
    mid.ff_tokens = (uint32_t)(uintptr_t)tokens;
    mid.num_ff_tokens = n;
}

static uint32_t x_token(void) {
    aici_tokenize("x", 1);
    uint32_t token;
    aici_read(AICI_TOKENIZED, 0, &token, 4);
    return token;
}

static void by_chance(void) {
    for (uint32_t i = 0; arg.num_group > 1 && i < arg.num_group; i++)
        if (arg.group[i] == arg.seq_id) fold(i + 1);
    fold(arg.step);
    switch (hash % 8) {
    case 0: splice(observed > 2, x_token(), 1); break;
    case 1: sample(AICI_ROW_ALL, 0, 0); break;
    case 2:
        if (has_row) {
            sample(AICI_ROW_SAME, 0, 0);
            break;
        } /* fallthrough */
    default:
        for (uint32_t i = 0; i < vocabulary->mask_words; i++) mask[i] = hash * (2 * i + 1) | 2;
        mask[end >> 5] &= ~(1u << (end & 31)); /* sequences go on for a while */
        sample(AICI_ROW_BITMASK, (uint32_t)(uintptr_t)mask, vocabulary->mask_words);
    }
    has_row |= mid.verb == AICI_SAMPLE;
    if (hash >> 8 & 1) mid.flags = AICI_MID_HOLD_END;
    if ((hash >> 9) % 8 == 0 && suspends++ < 4) next_pre = AICI_SUSPEND;
    if ((hash >> 9) % 8 == 1 && forks++ < 2) next_pre = AICI_FORK;
    if (*script == '+') {
        mood = mood * 1664525u + 1013904223u; /* does not affect answers */
        if (mood >> 30 & 1) mid.flags |= AICI_MID_SKIP_POST;
        if (mood >> 31 && next_pre == AICI_CONTINUE) mid.flags |= AICI_MID_SKIP_PRE;
    }
}

AICI_EXPORT(aici_mid_process) aici_mid_result *aici_mid_process(void) {
    printf("mid %u\n", arg.step);
    observe();
    mid = (aici_mid_result){.size = sizeof mid};
    if (*script == '#' || *script == '+') {
        by_chance();
        return &mid;
    }
    char what = script[at];
    sample(AICI_ROW_ALL, 0, 0);
    mid.flags = (uint32_t)(script[at + 1] - '0');
    if (script[at + 2]) at += 2;
    if (what == 'm') mid.row_kind = AICI_ROW_SAME;
    if (what == 'e') sample(AICI_ROW_TOKEN, end, 0);
    if (what == 'k') mid.top_logprobs = 2;
    if (what == 's') splice(0, x_token(), 1);
    if (what == 'd') splice(0, end, 1);
    if (what == 'b') splice(1, x_token(), 1);
    if (what == 'n') splice(0, 0, 0);
    if (what == 'x') mid.verb = AICI_STOP;
    if (what == 'f') next_pre = AICI_FORK;
    if (what == 'w') next_pre = AICI_SUSPEND;
    /* a chain of multiplications takes about as many cycles on all processors; memory does not */
    if (what == 'l') {
        for (uint32_t i = 0; i < 40000000; i++) slow = slow * slow + i;
        sink = slow;
    }
    if (what == 'o' || what == 'z') mid.size = OLD_SIZE;
    if (what == 'z') {
        char *last = (char *)(__builtin_wasm_memory_size(0) << 16) - OLD_SIZE;
        memcpy(last, &mid, OLD_SIZE);
        return (aici_mid_result *)last;
    }
    return &mid;
}
