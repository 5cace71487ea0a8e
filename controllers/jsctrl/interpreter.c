/* jsctrl: runs a script in JavaScript as a controller: aici run my_script.js. The argument is the script, which
 * QuickJS executes.
 *
 * This file is the interpreter as the core of script controllers sees it (script.h). */
#include <stdlib.h>
#include <string.h>

#include "aici_library.h"
#include "context.h"
#include "quickjs.h"
#include "script.h"

const char interpreter_language[] = "JavaScript";

/* The heap's part of a controller's 64 MiB (malloc rounds up to powers of two). With this limit, a script gets an
 * error that it can catch before the runtime ends it. */
#define MOST_HEAP (28 * 1024 * 1024)
/* Limit on the C stack, which is a part of linear memory, for nested calls. */
#define STACK_LIMIT (128 * 1024)

static const char *const callback_names[] = {"main", "init_prompt", "pre_process", "mid_process", "post_process"};

JSContext *context;
static JSValue callbacks[5];
/* Functions of the library: calls a callback; completes the awaited action; handles the end of main. */
static JSValue call_callback, end_action, tell_ended;
/* The promise that `main` returned. */
static JSValue running;
static bool has_started;

/* Stack use counts from the position of the stack when the host calls. */
#define ENTER() (is_out_of_time = false, JS_UpdateStackTop(JS_GetRuntime(context)))

/* Whether the script was interrupted in this call. */
static bool is_out_of_time;

/* QuickJS calls this every 10 000 jumps and calls. */
static int interrupt(JSRuntime *runtime, void *data) {
  (void)runtime, (void)data;
  if (is_out_of_time || !(*script_flags() & SCRIPT_HURRY)) return 0;
  return is_out_of_time = true;
}

/* ---- failures ---- */

static char *message;

script_text interpreter_failure(void) {
  return message == NULL ? (script_text){"out of memory", 13} : (script_text){message, strlen(message)};
}

static char *copy_string(JSValueConst value) {
  const char *text = JS_ToCString(context, value);
  char *copy = text == NULL ? NULL : strdup(text);
  JS_FreeCString(context, text);
  if (copy == NULL) JS_FreeValue(context, JS_GetException(context));
  return copy;
}

/* Stores an error with its stack trace; returns false. */
static bool keep_failure(JSValue error) {
  free(message);
  message = is_out_of_time ? strdup("TimeLimitError: " SCRIPT_HURRY_MESSAGE) : copy_string(error);
  if (JS_IsError(error)) {
    const JSValue stack = JS_GetPropertyStr(context, error, "stack");
    char *places = JS_IsString(stack) ? copy_string(stack) : NULL;
    if (message != NULL && places != NULL && places[0] != '\0') {
      char *both = malloc(strlen(message) + strlen(places) + 2);
      if (both != NULL) {
        strcpy(both, message);
        strcat(both, "\n");
        strcat(both, places);
        free(message);
        message = both;
      }
    }
    free(places);
    JS_FreeValue(context, stack);
  }
  size_t size = message == NULL ? 0 : strlen(message);
  while (size != 0 && message[size - 1] == '\n') message[--size] = '\0';
  JS_FreeValue(context, error);
  return false;
}

/* ---- loading ---- */

static JSModuleDef *compile_module(const char *name, const char *source, size_t size) {
  const JSValue module = JS_Eval(context, source, size, name, JS_EVAL_TYPE_MODULE | JS_EVAL_FLAG_COMPILE_ONLY);
  if (JS_IsException(module)) return NULL;
  JSModuleDef *const found = JS_VALUE_GET_PTR(module);
  JS_FreeValue(context, module); /* modules belong to the context */
  return found;
}

static JSModuleDef *load_module(JSContext *in, const char *name, void *data) {
  (void)data;
  if (strcmp(name, "_aici") == 0) return aici_actions_module(in);
  if (strcmp(name, "_host") == 0) return aici_host_module(in);
  if (strcmp(name, "aici") == 0) return compile_module("aici", aici_library, aici_library_length);
  JS_ThrowReferenceError(in, "there is no module \"%s\": a controller has the module \"aici\" alone", name);
  return NULL;
}

/* Runs all pending jobs; returns false if one failed. */
static bool run_jobs(void) {
  for (;;) {
    JSContext *in;
    const int done = JS_ExecutePendingJob(JS_GetRuntime(context), &in);
    if (done == 0) return true;
    if (done < 0) return keep_failure(JS_GetException(context));
  }
}

/* Returns whether a promise is fulfilled. Returns false with a failure if it is rejected or will never settle. */
static bool settle(JSValueConst promise, const char *never) {
  if (!run_jobs()) return false;
  switch (JS_PromiseState(context, promise)) {
    case JS_PROMISE_REJECTED:
      return keep_failure(JS_PromiseResult(context, promise));
    case JS_PROMISE_PENDING:
      JS_ThrowTypeError(context, "%s", never);
      return keep_failure(JS_GetException(context));
    default:
      return true;
  }
}

/* Runs a module; returns its exports, or an exception that has been stored. */
static JSValue run_module(const char *name, const char *source, size_t size) {
  const JSValue module = JS_Eval(context, source, size, name, JS_EVAL_TYPE_MODULE | JS_EVAL_FLAG_COMPILE_ONLY);
  if (JS_IsException(module)) return keep_failure(JS_GetException(context)), JS_EXCEPTION;
  JSModuleDef *const definition = JS_VALUE_GET_PTR(module);
  const JSValue done = JS_EvalFunction(context, module);
  if (JS_IsException(done)) return keep_failure(JS_GetException(context)), JS_EXCEPTION;
  const bool well = settle(done, "the top level of a script cannot wait: await in main");
  JS_FreeValue(context, done);
  return well ? JS_GetModuleNamespace(context, definition) : JS_EXCEPTION;
}

static bool load_library(script_text argument) {
  static const char source[] =
      "import * as aici from \"aici\";"
      "export const call = aici._call, end = aici._end, ended = aici._ended;";
  const JSValue global = JS_GetGlobalObject(context);
  JS_SetPropertyStr(context, global, "_aici_argument", JS_NewStringLen(context, argument.data, argument.size));
  const JSValue exports = run_module("aici-start.js", source, sizeof source - 1);
  if (JS_IsException(exports)) return false;
  call_callback = JS_GetPropertyStr(context, exports, "call");
  end_action = JS_GetPropertyStr(context, exports, "end");
  tell_ended = JS_GetPropertyStr(context, exports, "ended");
  JS_FreeValue(context, exports);
  JS_FreeValue(context, global);
  return true;
}

bool interpreter_load(script_text name, script_text source, script_text argument) {
  JSRuntime *const runtime = JS_NewRuntime();
  context = runtime == NULL ? NULL : JS_NewContext(runtime);
  if (context == NULL) return false;
  JS_SetInterruptHandler(runtime, interrupt, NULL);
  JS_SetMemoryLimit(runtime, MOST_HEAP);
  JS_SetMaxStackSize(runtime, STACK_LIMIT);
  JS_SetModuleLoaderFunc(runtime, NULL, load_module, NULL);
  if (!load_library(argument)) return false;
  /* QuickJS requires a zero byte after the text */
  char *const file = strndup(name.data, name.size), *const text = malloc(source.size + 1);
  memcpy(text, source.data, source.size);
  text[source.size] = '\0';
  const JSValue exports = run_module(file, text, source.size);
  free(text);
  free(file);
  if (JS_IsException(exports)) return false;
  for (size_t i = 0; i < sizeof callbacks / sizeof *callbacks; i++) {
    callbacks[i] = JS_GetPropertyStr(context, exports, callback_names[i]);
    if (JS_IsException(callbacks[i])) return keep_failure(JS_GetException(context));
  }
  JS_FreeValue(context, exports);
  return true;
}

/* ---- running ---- */

bool interpreter_has(script_callback which) { return JS_IsFunction(context, callbacks[which]); }

script_state interpreter_resume(void) {
  ENTER();
  if (!has_started) {
    has_started = true;
    running = JS_Call(context, callbacks[SCRIPT_MAIN], JS_UNDEFINED, 0, NULL);
    if (JS_IsException(running)) return keep_failure(JS_GetException(context)), SCRIPT_FAILED;
    if (!JS_IsPromise(running)) {
      JS_ThrowTypeError(context, "main must be asynchronous: write export async function main()");
      return keep_failure(JS_GetException(context)), SCRIPT_FAILED;
    }
  } else {
    const JSValue done = JS_Call(context, end_action, JS_UNDEFINED, 0, NULL);
    if (JS_IsException(done)) return keep_failure(JS_GetException(context)), SCRIPT_FAILED;
    JS_FreeValue(context, done);
  }
  if (!run_jobs()) return SCRIPT_FAILED;
  if (JS_PromiseState(context, running) == JS_PROMISE_PENDING && aici_action_awaited) {
    aici_action_awaited = false;
    return SCRIPT_AWAITS;
  }
  if (!settle(running, "main waits for a promise that nothing will keep")) return SCRIPT_FAILED;
  JS_FreeValue(context, JS_Call(context, tell_ended, JS_UNDEFINED, 0, NULL));
  return SCRIPT_ENDED;
}

bool interpreter_call(script_callback which) {
  ENTER();
  JSValue arguments[] = {JS_NewString(context, callback_names[which]), JS_DupValue(context, callbacks[which])};
  const JSValue done = JS_Call(context, call_callback, JS_UNDEFINED, 2, arguments);
  JS_FreeValue(context, arguments[0]);
  JS_FreeValue(context, arguments[1]);
  if (JS_IsException(done)) return keep_failure(JS_GetException(context));
  JS_FreeValue(context, done);
  return run_jobs();
}

/* QuickJS counts references, and looks for cycles by itself. */
void interpreter_idle(void) {}
