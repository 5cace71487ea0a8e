/* NAME: the model writes without the letters of the argument ("e", if there is none).
 *
 * Try: aici run NAME.wasm --prompt "Tell me a story" --arg aeiou
 *
 * aici.h, and docs/abi.md of aici, say what every call and field means. */
#include <ctype.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "aici.h"

AICI_CONTROLLER

/* What a sequence remembers lives in ordinary variables: every fork gets its own copy of the memory. */
static aici_step_arg arg = {.size = sizeof arg};
static aici_mid_result result = {.size = sizeof result, .verb = AICI_SAMPLE, .row_kind = AICI_ROW_BITMASK};

static unsigned char letters[256] = {'e'};
static uint32_t num_letters = 1;

static bool has_one_of_the_letters(const char *text, uint32_t length) {
    for (uint32_t i = 0; i < length; i++)
        for (uint32_t k = 0; k < num_letters; k++)
            if (tolower((unsigned char)text[i]) == tolower(letters[k])) return true;
    return false;
}

static void fail(const char *message) { aici_fail(message, strlen(message)); }

AICI_EXPORT(aici_arg) aici_step_arg *aici_arg(void) { return &arg; }

/* Once per argument, before there is a prompt. The tokens that may be used are found here. */
AICI_EXPORT(aici_init) int aici_init(uint32_t arg_len) {
    if (arg_len > sizeof letters) fail("these are too many letters");
    if (arg_len > 0) num_letters = aici_read(AICI_ARG, 0, letters, sizeof letters);
    const aici_vocabulary_header *vocabulary = aici_vocabulary();
    const uint32_t *offsets = aici_section(vocabulary, vocabulary->token_offsets);
    const uint32_t *eos = aici_section(vocabulary, vocabulary->eos);
    const uint32_t *text = aici_section(vocabulary, vocabulary->text_mask); /* the tokens that are text */
    uint32_t *mask = calloc(vocabulary->mask_words, sizeof *mask), count = 0;
    if (mask == NULL) fail("out of memory");
    for (uint32_t token = 0; token < vocabulary->vocab_size; token++) {
        const char *bytes = aici_section(vocabulary, vocabulary->token_bytes + offsets[token]);
        if (!(text[token >> 5] >> (token & 31) & 1)) continue;
        if (has_one_of_the_letters(bytes, offsets[token + 1] - offsets[token])) continue;
        mask[token >> 5] |= 1u << (token & 31);
        count++;
    }
    if (count == 0) fail("no token is left without these letters");
    for (uint32_t i = 0; i < vocabulary->num_eos; i++)
        mask[eos[i] >> 5] |= 1u << (eos[i] & 31); /* the text may end anywhere */
    printf("%u of %u tokens are allowed\n", count + vocabulary->num_eos, vocabulary->vocab_size);
    result.row = (uint32_t)(uintptr_t)mask;
    result.row_len = vocabulary->mask_words;
    return 0;
}

/* Once per token, while the model computes the logits for the next one. */
AICI_EXPORT(aici_mid_process) aici_mid_result *aici_mid_process(void) { return &result; }
