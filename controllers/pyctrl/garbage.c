/* Garbage collection. WebAssembly locals cannot be scanned, so a collection would free objects to which only a C
 * function refers. Therefore collections run between callbacks, and where bytecode.c knows every active function. */
#include "garbage.h"

#include <stdint.h>

#include "interpreter.h"
#include "py/gc.h"
#include "py/mpstate.h"

/* Allocated bytes after which a collection between callbacks is due. A low limit keeps the number of written pages
 * small: a written page belongs to one sequence alone. */
#define COLLECT_AFTER (32 * 1024)
/* The initial limit within a callback. A larger heap takes longer to scan, so it is collected less often. */
#define COLLECT_WITHIN (512 * 1024)

bool is_collection_due;
/* The threshold chosen here. Scripts may choose another with gc.threshold. */
static size_t threshold;

static void set_threshold(size_t bytes) {
  threshold = bytes / MICROPY_BYTES_PER_GC_BLOCK;
  MP_STATE_MEM(gc_alloc_threshold) = threshold;
}

void garbage_begin(void) { set_threshold(COLLECT_WITHIN); }

static size_t heap_size(void) {
  size_t total = 0;
  for (const mp_state_mem_area_t *area = &MP_STATE_MEM(area); area != NULL; area = area->next)
    total += (size_t)(area->gc_pool_end - area->gc_alloc_table_start);
  return total;
}

size_t gc_get_max_new_split(void) {
  const size_t total = heap_size();
  return total < MOST_HEAP ? MOST_HEAP - total : 0;
}

/* Chooses the bytes to allocate before the next collection: as many as are in use, but at most half of the rest of the
 * heap, so that a collection runs before the heap is full. (When the heap is full, an allocation raises MemoryError at
 * once.) It is never less than COLLECT_WITHIN, or a nearly full heap would be collected again and again. */
static void choose_threshold(void) {
  if (MP_STATE_MEM(gc_alloc_threshold) != threshold) return;
  size_t next = COLLECT_WITHIN;
  if (heap_size() > 2 * COLLECT_WITHIN) {
    gc_info_t info;
    gc_info(&info);
    const size_t half_left = info.used < MOST_HEAP ? (MOST_HEAP - info.used) / 2 : 0;
    const size_t wanted = info.used < half_left ? info.used : half_left;
    if (wanted > next) next = wanted;
  }
  set_threshold(next);
}

/* MicroPython calls this when memory runs out, when the threshold is reached, or when a script asks for a collection.
 * C functions may be active, so this only requests a collection. */
void gc_collect(void) { is_collection_due = true; }

static void finish(void) {
  gc_collect_end();
  is_collection_due = false;
  choose_threshold();
}

void collect_if_due(void) {
  const size_t allocated = MP_STATE_MEM(gc_alloc_amount) * MICROPY_BYTES_PER_GC_BLOCK;
  if (!is_collection_due && allocated < COLLECT_AFTER) return;
  gc_collect_start();
  finish();
}

/* Defined by the linker: the start of the C stack, which grows down. */
extern char __stack_high;

void collect_under_bytecode(void) {
  void *here = NULL;
  gc_collect_start();
  void **const top = &here;
  gc_collect_root(top, (size_t)((uintptr_t)&__stack_high - (uintptr_t)top) / sizeof(void *));
  finish();
}
