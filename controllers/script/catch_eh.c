/* Catches failures by `aici::fail`: see script.h. Compiled with support for setjmp, which C++ lacks. */
#include <setjmp.h>

#include "catch.h"

static jmp_buf *present;

void script_throw(void) {
  if (present != NULL) longjmp(*present, 1);
}

bool script_catch(void (*body)(void *), void *data) {
  jmp_buf here;
  jmp_buf *const outer = present;
  present = &here;
  const bool failed = setjmp(here) != 0;
  if (!failed) body(data);
  present = outer;
  return failed;
}
