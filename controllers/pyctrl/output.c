#include "output.h"

#include <string.h>

#include "py/mphal.h"
#include "py/misc.h"
#include "py/mpprint.h"
#include "script.h"

/* ---- the log: line by line, since each call of the host takes about a microsecond ---- */

static char line[1024];
static size_t line_size;

void flush_output(void) {
  if (line_size != 0) script_log((script_text){line, line_size});
  line_size = 0;
}

mp_uint_t mp_hal_stdout_tx_strn(const char *text, size_t size) {
  if (size > sizeof line - line_size) flush_output();
  if (size > sizeof line) {
    script_log((script_text){text, size});
    return size;
  }
  memcpy(line + line_size, text, size);
  line_size += size;
  if (memchr(text, '\n', size) != NULL) flush_output();
  return size;
}

void mp_hal_stdout_tx_strn_cooked(const char *text, size_t size) { mp_hal_stdout_tx_strn(text, size); }
void mp_hal_stdout_tx_str(const char *text) { mp_hal_stdout_tx_strn(text, strlen(text)); }

/* ---- failures: outside the heap, which may be full ---- */

static char message[8192];
static size_t message_size;
/* The start of the current line, and how often the previous line was repeated. Recursion repeats many lines. */
static size_t line_begin, repeated;
static const size_t NO_LINE = (size_t)-1;
static size_t line_before;

static void add(const char *text, size_t size) {
  const size_t room = sizeof message - message_size;
  const size_t now = size < room ? size : room;
  memcpy(message + message_size, text, now);
  message_size += now;
}

/* Completes the current line. Drops it if it repeats the previous line. */
static void end_line(void) {
  const size_t size = message_size - line_begin;
  if (line_before != NO_LINE && line_begin - line_before == size &&
      memcmp(message + line_before, message + line_begin, size) == 0) {
    repeated++;
    message_size = line_begin;
    return;
  }
  if (repeated != 0) {
    char last[512];
    const size_t kept = size < sizeof last ? size : sizeof last;
    memcpy(last, message + line_begin, kept);
    message_size = line_begin;
    vstr_t count;
    char buffer[64];
    vstr_init_fixed_buf(&count, sizeof buffer, buffer);
    vstr_printf(&count, "  [the line above %u times more]\n", (unsigned)repeated);
    add(count.buf, count.len);
    line_begin = message_size;
    add(last, kept);
    repeated = 0;
  }
  line_before = line_begin;
  line_begin = message_size;
}

static void add_to_message(void *data, const char *text, size_t size) {
  (void)data;
  while (size != 0) {
    const char *const end = memchr(text, '\n', size);
    const size_t now = end == NULL ? size : (size_t)(end - text) + 1;
    add(text, now);
    if (end != NULL) end_line();
    text += now;
    size -= now;
  }
}

void keep_failure(mp_obj_t exception) {
  static const mp_print_t print = {NULL, add_to_message};
  message_size = line_begin = repeated = 0;
  line_before = NO_LINE;
  mp_obj_print_exception(&print, exception);
  end_line();
  while (message_size != 0 && message[message_size - 1] == '\n') message_size--;
}

script_text interpreter_failure(void) { return (script_text){message, message_size}; }

/* ---- input: always empty ---- */

int mp_hal_stdin_rx_chr(void) {
  static const int end = 4; /* Control-D: the end of the input */
  return end;
}

uintptr_t mp_hal_stdio_poll(uintptr_t flags) {
  (void)flags;
  return 0;
}
