/* context.h - declarations shared by the files of jsctrl. */
#ifndef AICI_JSCTRL_CONTEXT_H
#define AICI_JSCTRL_CONTEXT_H

#include <stdbool.h>

#include "quickjs.h"

/* The only context of this instance. */
extern JSContext *context;
/* Whether an action is awaited. */
extern bool aici_action_awaited;

/* The modules _aici and _host: script.h for JavaScript. */
JSModuleDef *aici_actions_module(JSContext *in);
JSModuleDef *aici_host_module(JSContext *in);

#endif /* AICI_JSCTRL_CONTEXT_H */
