/* output.h - what Python prints: to the log, and to the message of a failure. */
#ifndef AICI_PYCTRL_OUTPUT_H
#define AICI_PYCTRL_OUTPUT_H

#include "py/obj.h"

/* Writes what was printed and is not written yet. */
void flush_output(void);
/* Keeps an exception with its traceback: interpreter_failure(). */
void keep_failure(mp_obj_t exception);

#endif /* AICI_PYCTRL_OUTPUT_H */
