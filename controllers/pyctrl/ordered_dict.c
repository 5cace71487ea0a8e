/* Dictionaries that keep the order of their members, as in Python. MicroPython's own do not, so the order of properties
 * in a schema would be lost. Lookup is then a linear search: one or two nanoseconds per member. */
#pragma clang diagnostic ignored "-Weverything"
#define mp_map_init new_ordered_map
#include "py/objdict.c"
#undef mp_map_init

extern void mp_map_init(mp_map_t *map, size_t count);

void new_ordered_map(mp_map_t *map, size_t count) {
  mp_map_init(map, count);
  map->is_ordered = 1;
}
