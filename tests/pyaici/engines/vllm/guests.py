"""Controllers for these tests."""

from __future__ import annotations

from pathlib import Path

from pyaici.toolchain import build_controller

#: lets the model write. With the argument "steps back text" it removes `back` tokens in that step and appends
#: `text`
_SECOND_THOUGHTS = r"""
#include "aici.h"

AICI_CONTROLLER

static aici_step_arg arg = {sizeof arg};
static aici_mid_result mid;
static char text[64];
static uint32_t tokens[64];

AICI_EXPORT(aici_arg) aici_step_arg *aici_arg(void) { return &arg; }

AICI_EXPORT(aici_init) int aici_init(uint32_t length) {
    aici_read(AICI_ARG, 0, text, length);
    return 0;
}

AICI_EXPORT(aici_mid_process) aici_mid_result *aici_mid_process(void) {
    mid = (aici_mid_result){.size = sizeof mid, .verb = AICI_SAMPLE, .row_kind = AICI_ROW_ALL};
    const char *at = text;
    uint32_t numbers[2] = {0, 0};
    for (int i = 0; i < 2; i++, at++)
        for (; *at >= '0' && *at <= '9'; at++) numbers[i] = numbers[i] * 10 + (uint32_t)(*at - '0');
    if (arg.step == numbers[0]) {
        uint32_t length = 0;
        while (at[length] != 0) length++;
        mid.verb = AICI_SPLICE;
        mid.backtrack = numbers[1];
        mid.num_ff_tokens = aici_tokenize(at, length);
        mid.ff_tokens = (uint32_t)tokens;
        aici_read(AICI_TOKENIZED, 0, tokens, sizeof tokens);
    }
    return &mid;
}
"""

#: lets the model write, and prints each step and its first token. With SHARED it counts in a variable, and
#: appends the count in its twelfth step
_DIARY = r"""
#include <stdio.h>
#include "aici.h"

AICI_CONTROLLER

static aici_step_arg arg = {sizeof arg};
static aici_mid_result mid;
static char text[16];
static uint32_t tokens[16];

AICI_EXPORT(aici_arg) aici_step_arg *aici_arg(void) { return &arg; }

AICI_EXPORT(aici_mid_process) aici_mid_result *aici_mid_process(void) {
    mid = (aici_mid_result){.size = sizeof mid, .verb = AICI_SAMPLE, .row_kind = AICI_ROW_ALL};
    printf("%u %u\n", arg.step, arg.num_tokens ? arg.tokens[0] : 0);
    fflush(stdout);
#ifdef SHARED
    uint32_t count = aici_var_write("n", 1, "x", 1, AICI_APPEND, AICI_ANY_VERSION);
    if (arg.step == 12) {
        mid.verb = AICI_SPLICE;
        mid.num_ff_tokens = aici_tokenize(text, (uint32_t)snprintf(text, sizeof text, " (%u)", count));
        mid.ff_tokens = (uint32_t)tokens;
        aici_read(AICI_TOKENIZED, 0, tokens, sizeof tokens);
    }
#endif
    return &mid;
}
"""

#: lets the model write, and prints each token with everything that is known about it. With the argument
#: "top period mask" it asks for the `top` most likely tokens in each `period`th step, and with mask 1 it
#: allows only tokens with even numbers. With POST it prints in post_process, else in mid_process
_GAUGE = r"""
#include <stdio.h>
#include <stdlib.h>
#include "aici.h"

AICI_CONTROLLER

static aici_step_arg arg = {sizeof arg};
static aici_mid_result mid;
static aici_top top[64];
static uint32_t number[3], even[8192], words;

AICI_EXPORT(aici_arg) aici_step_arg *aici_arg(void) { return &arg; }

AICI_EXPORT(aici_init) int aici_init(uint32_t length) {
    char text[64] = {0}, *at = text;
    aici_read(AICI_ARG, 0, text, sizeof text - 1);
    for (int i = 0; i < 3; i++) number[i] = (uint32_t)strtoul(at, &at, 10);
    words = ((const aici_vocabulary_header *)aici_vocabulary())->mask_words;
    for (uint32_t i = 0; i < words; i++) even[i] = 0x55555555;
    return length >= sizeof text;
}

static void print(void) {
    uint32_t count = aici_read(AICI_TOP, 0, top, sizeof top) / sizeof *top;
    for (uint32_t i = 0; i < arg.num_tokens; i++) printf("%u ", arg.tokens[i]);
    printf("%u %u %f %f", arg.flags, arg.num_top, arg.logprob, arg.allowed_mass);
    for (uint32_t i = 0; i < count; i++) printf(" %u %f", top[i].token, top[i].logprob);
    printf("\n");
    fflush(stdout);
}

#ifdef POST
static aici_post_result post = {sizeof post, AICI_CONTINUE};

AICI_EXPORT(aici_post_process) aici_post_result *aici_post_process(void) {
    print();
    return &post;
}
#endif

AICI_EXPORT(aici_mid_process) aici_mid_result *aici_mid_process(void) {
#ifndef POST
    print();
#endif
    mid = (aici_mid_result){.size = sizeof mid, .verb = AICI_SAMPLE, .row_kind = AICI_ROW_ALL};
    if (arg.step % number[1] == 0) mid.top_logprobs = number[0];
    if (number[2]) mid.row_kind = AICI_ROW_BITMASK, mid.row = (uint32_t)even, mid.row_len = words;
    return &mid;
}
"""


#: allows all tokens until its fourth step; its argument selects how it fails then
_FAILING = r"""
#include "aici.h"

AICI_CONTROLLER

static aici_step_arg arg = {sizeof arg};
static aici_mid_result mid;
static char mode;

AICI_EXPORT(aici_arg) aici_step_arg *aici_arg(void) { return &arg; }

AICI_EXPORT(aici_init) int aici_init(uint32_t length) {
    aici_read(AICI_ARG, 0, &mode, length != 0);
    return 0;
}

AICI_EXPORT(aici_mid_process) aici_mid_result *aici_mid_process(void) {
    mid = (aici_mid_result){.size = sizeof mid, .verb = AICI_SAMPLE, .row_kind = AICI_ROW_ALL};
    if (arg.step > 3 && mode == 't') __builtin_trap();
    if (arg.step > 3 && mode == 'l') for (volatile int i = 0;; i++) {}
    if (arg.step > 3 && mode == 'f') aici_fail("not today", 9);
    if (arg.step > 3 && mode == 'b') { mid.verb = AICI_SPLICE; mid.backtrack = 1; }
    return &mid;
}
"""

_FILES = Path(__file__).resolve().parents[3] / "guests"
#: by name: the source, or a file of tests/guests, and what it defines
_GUESTS: dict[str, tuple[str | Path, str]] = {
    "thoughts": (_SECOND_THOUGHTS, ""),
    "diary": (_DIARY, ""),
    "shared": (_DIARY, "SHARED"),
    "gauge": (_GAUGE, "POST"),
    "gauge_mid": (_GAUGE, ""),
    "failing": (_FAILING, ""),
    "acrobat": (_FILES / "acrobat.cpp", ""),
    "writer": (_FILES / "writer.c", ""),
    "register": (_FILES / "register.c", ""),
    "flags": (_FILES / "flags.c", ""),
    # without the callbacks that it could skip, so that drafts can be used
    "flags_mid": (_FILES / "flags.c", "MID_ONLY"),
    "tilt": (_FILES / "tilt.cpp", ""),
    # prints the allowed mass of each token
    "tilt_mass": (_FILES / "tilt.cpp", "MASS"),
}


def build_guest(name: str, folder: Path) -> Path:
    """Builds a controller for these tests. Returns the Wasm file in `folder`."""
    source, defined = _GUESTS[name]
    text = source if isinstance(source, str) else source.read_text("utf-8")
    file = folder / f"{name}{source.suffix if isinstance(source, Path) else '.c'}"
    file.write_text((f"#define {defined}\n" if defined else "") + text, "utf-8")
    return build_controller(file, file.with_suffix(".wasm")).path
