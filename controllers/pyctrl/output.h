/* output.h - what Python prints, for the log and for error messages. */
#ifndef AICI_PYCTRL_OUTPUT_H
#define AICI_PYCTRL_OUTPUT_H

#include "py/obj.h"

/* Writes the buffered output to the log. */
void flush_output(void);
/* Stores an exception with its traceback, for interpreter_failure(). */
void keep_failure(mp_obj_t exception);

#endif /* AICI_PYCTRL_OUTPUT_H */
