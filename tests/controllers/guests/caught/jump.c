/* Leaves functions that have failed. It is compiled with support for setjmp. */
#include <setjmp.h>
#include <stdbool.h>
#include <stddef.h>

/* The tag of what longjmp throws, which the compiler names and nobody defines: its one value is an address. */
__asm__(".globl __c_longjmp\n.tagtype __c_longjmp i32\n__c_longjmp:\n");

static jmp_buf *present;

void leave(void) {
  if (present != NULL) longjmp(*present, 1);
}

bool is_left(void (*body)(void *), void *data) {
  jmp_buf here;
  jmp_buf *const outer = present;
  present = &here;
  const bool left = setjmp(here) != 0;
  if (!left) body(data);
  present = outer;
  return left;
}
