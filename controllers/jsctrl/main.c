/* jsctrl: the argument is a script in JavaScript, which is asked for every token. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "aici.h"
#include "aici_library.h"
#include "quickjs.h"

AICI_CONTROLLER

enum {
    HEAP_LIMIT = 28 << 20,   /* malloc rounds up to powers of two, and a module may have 64 MiB */
    STACK_LIMIT = 128 << 10, /* of interpreter.toml's; the rest is for what looks at it seldom */
};

static aici_step_arg arg = {.size = sizeof arg};
static aici_mid_result result = {.size = sizeof result};
static JSContext *context;
static JSValue mid_process;

/* ---- output ---- */

static JSValue print(JSContext *c, JSValueConst self, int count, JSValueConst *values) {
    (void)self;
    for (int i = 0; i < count; i++) {
        size_t length;
        const char *text = JS_ToCStringLen(c, &length, values[i]);
        if (text == NULL) return JS_EXCEPTION;
        if (i > 0) putchar(' ');
        fwrite(text, 1, length, stdout);
        JS_FreeCString(c, text);
    }
    putchar('\n');
    return JS_UNDEFINED;
}

/* ---- errors ---- */

/* The sequence ends with what was thrown, and where. */
static void fail(void) {
    JSValue error = JS_GetException(context);
    const char *message = JS_ToCString(context, error);
    JSValue stack = JS_IsError(error) ? JS_GetPropertyStr(context, error, "stack") : JS_UNDEFINED;
    const char *where = JS_IsString(stack) ? JS_ToCString(context, stack) : NULL;
    char text[4096];
    int length = snprintf(text, sizeof text, "%s\n%s", message ? message : "out of memory", where ? where : "");
    aici_fail(text, length < (int)sizeof text ? (uint32_t)length : sizeof text - 1);
}

static JSValue checked(JSValue value) {
    if (JS_IsException(value)) fail();
    return value;
}

/* ---- the script ---- */

AICI_EXPORT(aici_arg) aici_step_arg *aici_arg(void) { return &arg; }

static void run(const char *name, const char *source, size_t length) {
    JS_FreeValue(context, checked(JS_Eval(context, source, length, name, JS_EVAL_TYPE_GLOBAL)));
}

AICI_EXPORT(aici_init) int aici_init(uint32_t length) {
    JSRuntime *runtime = JS_NewRuntime();
    JS_SetMemoryLimit(runtime, HEAP_LIMIT);
    JS_SetMaxStackSize(runtime, STACK_LIMIT);
    context = JS_NewContext(runtime);
    JSValue global = JS_GetGlobalObject(context);
    JS_SetPropertyStr(context, global, "print", JS_NewCFunction(context, print, "print", 1));
    run("aici.js", aici_library, aici_library_length);
    char *source = malloc(length + 1);
    if (source == NULL) abort();
    aici_read(AICI_ARG, 0, source, length);
    source[length] = 0;
    run("script", source, length);
    free(source);
    mid_process = checked(JS_GetPropertyStr(context, global, "mid_process"));
    JS_FreeValue(context, global);
    return 0;
}

AICI_EXPORT(aici_mid_process) aici_mid_result *aici_mid_process(void) {
    JSValue sampled = JS_NewInt32(context, arg.num_tokens > 0 ? (int32_t)arg.tokens[arg.num_tokens - 1] : -1);
    JSValue answer = checked(JS_Call(context, mid_process, JS_UNDEFINED, 1, &sampled));
    int32_t token;
    if (JS_ToInt32(context, &token, answer) < 0) fail();
    JS_FreeValue(context, answer);
    result.verb = token < 0 ? AICI_STOP : AICI_SAMPLE;
    result.row_kind = AICI_ROW_TOKEN;
    result.row = token;
    return &result;
}
