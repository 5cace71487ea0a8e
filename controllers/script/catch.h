/* catch.h - leaves failing functions of the core by setjmp and longjmp, since C++ for WASI has no exceptions. */
#ifndef AICI_SCRIPT_CATCH_H
#define AICI_SCRIPT_CATCH_H

#include <stdbool.h>
#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Calls body(data); returns true if script_throw left it. Destructors in between do not run. */
bool script_catch(void (*body)(void *), void *data);
/* Leaves the innermost script_catch; returns if there is none. */
void script_throw(void);

#ifdef __cplusplus
}
#endif

#endif /* AICI_SCRIPT_CATCH_H */
