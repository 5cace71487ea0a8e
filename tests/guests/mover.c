/* A controller whose answers depend on all of its state. The last token selects
 * the action: F forks, S is suspended once, P splices, M requests the same row, D and T return other kinds of rows,
 * V writes a variable, R prints a random number, G grows the memory, L works for a while. Others return a mask. */
#include <aici.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

AICI_CONTROLLER

static aici_step_arg arg = {sizeof arg};
static aici_pre_result pre = {sizeof pre};
static aici_mid_result mid;
static const aici_vocabulary_header *vocabulary;
static uint32_t hash, tokens[4096], mask[64], suspended, rows;
static float dense[2048];
static uint8_t *heap;
static size_t heap_bytes;
static int last;

static void fold(uint32_t x) {
    hash = (hash ^ x) * 0x9e3779b1u;
    hash ^= hash >> 15;
}

AICI_EXPORT(aici_arg) aici_step_arg *aici_arg(void) { return &arg; }

AICI_EXPORT(aici_init) int aici_init(uint32_t size) {
    char text[64] = {0};
    aici_read(AICI_ARG, 0, text, sizeof text - 1);
    vocabulary = aici_vocabulary();
    for (uint32_t i = 0; i < size && i < sizeof text; i++) fold((uint8_t)text[i]);
    heap_bytes = (size_t)strtol(text, NULL, 10);
    heap = malloc(heap_bytes + 1);
    return 0;
}

AICI_EXPORT(aici_init_prompt) int aici_init_prompt(uint32_t n) {
    aici_read(AICI_PROMPT, 0, tokens, sizeof tokens);
    for (uint32_t i = 0; i < n; i++) fold(tokens[i]);
    memset(heap, (int)hash, heap_bytes);
    return 0;
}

AICI_EXPORT(aici_pre_process) aici_pre_result *aici_pre_process(void) {
    uint32_t n = aici_read(AICI_TOKENS, 0, tokens, sizeof tokens) / 4;
    if (n) last = (int)tokens[n - 1];
    fold(arg.backtrack);
    for (uint32_t i = 0; i < n; i++) fold(tokens[i]);
    fold(arg.step);
    pre.verb = AICI_CONTINUE;
    if (n && last == 'F') {
        pre.verb = AICI_FORK;
        pre.num_forks = 2 + hash % 2;
    } else if (n && last == 'S') {
        pre.verb = AICI_SUSPEND;
        suspended++;
    }
    return &pre;
}

static void sample(uint32_t kind, uint32_t row, uint32_t len) {
    mid = (aici_mid_result){.size = sizeof mid, .verb = AICI_SAMPLE, .row_kind = kind, .row = row, .row_len = len};
}

AICI_EXPORT(aici_mid_process) aici_mid_result *aici_mid_process(void) {
    for (uint32_t i = 0; arg.num_group > 1 && i < arg.num_group; i++)
        if (arg.group[i] == arg.seq_id) fold(i + 1);
    uint32_t length = 0, prompt[2] = {0}, version = aici_var_get("v", 1, &length);
    aici_read(AICI_PROMPT, 0, prompt, sizeof prompt);
    fold(version + length * 7 + suspended + prompt[1]);
    if (heap_bytes) fold(heap[hash % heap_bytes]);
    uint32_t offset = aici_section(vocabulary, vocabulary->token_offsets) == 0;
    fold(vocabulary->vocab_size + offset);
    if (last == 'V') {
        char text[32];
        aici_var_write("v", 1, text, (uint32_t)snprintf(text, sizeof text, "%08x;", (unsigned)hash), AICI_APPEND,
                       AICI_ANY_VERSION);
        char all[4096];
        aici_var_get("v", 1, &length);
        uint32_t n = aici_read(AICI_VALUE, 0, all, sizeof all);
        printf("%u: %.*s\n", (unsigned)version, (int)(n < sizeof all ? n : sizeof all), all);
    }
    if (last == 'R' && !(arg.seq_id >> 31)) printf("random %d\n", (int)arc4random());
    if (last == 'G') {
        heap = realloc(heap, heap_bytes + 70000);
        memset(heap + heap_bytes, (int)hash, 70000);
        heap_bytes += 70000;
    }
    if (last == 'L')
        for (volatile uint32_t i = 0; i < 500000000; i++) {
        }
    if (last == 'P') {
        tokens[0] = 1 + hash % 64;
        tokens[1] = 'x';
        mid = (aici_mid_result){.size = sizeof mid, .verb = AICI_SPLICE, .backtrack = 1,
                                .ff_tokens = (uint32_t)(uintptr_t)tokens, .num_ff_tokens = 2};
        return &mid;
    }
    if (last == 'M' && rows) {
        sample(AICI_ROW_SAME, 0, 0);
    } else if (last == 'D') {
        for (uint32_t i = 0; i < vocabulary->vocab_size; i++) dense[i] = (float)((hash + i) & 0xff);
        sample(AICI_ROW_DENSE, (uint32_t)(uintptr_t)dense, vocabulary->vocab_size);
    } else if (last == 'T') {
        sample(AICI_ROW_TOKEN, 1 + hash % 200, 0);
    } else {
        for (uint32_t i = 0; i < vocabulary->mask_words; i++) mask[i] = hash * (2 * i + 1) | 2;
        sample(AICI_ROW_BITMASK, (uint32_t)(uintptr_t)mask, vocabulary->mask_words);
    }
    rows++;
    return &mid;
}
