/* context.h - what the files of jsctrl share. */
#ifndef AICI_JSCTRL_CONTEXT_H
#define AICI_JSCTRL_CONTEXT_H

#include <stdbool.h>

#include "quickjs.h"

/* The only one of this instance. */
extern JSContext *context;
/* An action has begun, and its end is awaited. */
extern bool aici_action_awaited;

/* The modules _aici and _host: script.h for JavaScript. */
JSModuleDef *aici_actions_module(JSContext *in);
JSModuleDef *aici_host_module(JSContext *in);

#endif /* AICI_JSCTRL_CONTEXT_H */
