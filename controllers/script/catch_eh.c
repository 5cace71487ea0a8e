/* Catches what `aici::fail` throws: see script.h. Compiled with support for setjmp, as C++ is not. */
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
