/* Dictionaries that keep the order of their members, as in Python: MicroPython's own forget it, and with it that of the
 * properties of a schema. Members are then looked for one by one, a nanosecond or two each. */
#pragma clang diagnostic ignored "-Weverything"
#define mp_map_init new_ordered_map
#include "py/objdict.c"
#undef mp_map_init

extern void mp_map_init(mp_map_t *map, size_t count);

void new_ordered_map(mp_map_t *map, size_t count) {
  mp_map_init(map, count);
  map->is_ordered = 1;
}
