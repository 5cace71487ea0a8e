/* The module _random: random bits. Scripts use library/random.py. */
#include <unistd.h>

#include "py/runtime.h"

/* Without a seed, every number comes from the host, since a state in memory would be the same in all forks. */
static bool is_seeded;
static uint64_t state;

/* SplitMix64 (Steele, Lea, Flood: Fast splittable pseudorandom number generators, 2014). */
static uint64_t next(void) {
  uint64_t z = state += 0x9E3779B97F4A7C15u;
  z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
  z = (z ^ z >> 27) * 0x94D049BB133111EBu;
  return z ^ z >> 31;
}

static uint64_t random_bits(unsigned count) {
  uint64_t value = 0;
  if (is_seeded)
    value = next();
  else if (getentropy(&value, sizeof value) != 0)
    mp_raise_OSError(5); /* EIO */
  return value >> (64 - count);
}

static mp_obj_t seed(mp_obj_t object) {
  is_seeded = object != mp_const_none;
  if (is_seeded) state = (uint64_t)mp_obj_get_int_truncated(object);
  return mp_const_none;
}
static MP_DEFINE_CONST_FUN_OBJ_1(seed_obj, seed);

static mp_obj_t bits(mp_obj_t object) {
  const mp_int_t count = mp_obj_get_int(object);
  if (count < 1 || count > 24) mp_raise_ValueError(MP_ERROR_TEXT("1 to 24 bits"));
  return MP_OBJ_NEW_SMALL_INT((mp_int_t)random_bits((unsigned)count));
}
static MP_DEFINE_CONST_FUN_OBJ_1(bits_obj, bits);

/* Returns a number from 0 to below 1. */
static mp_obj_t real(void) { return mp_obj_new_float((mp_float_t)random_bits(53) * 0x1p-53); }
static MP_DEFINE_CONST_FUN_OBJ_0(real_obj, real);

static const mp_rom_map_elem_t entries[] = {
    {MP_ROM_QSTR(MP_QSTR___name__), MP_ROM_QSTR(MP_QSTR__random)},
    {MP_ROM_QSTR(MP_QSTR_seed), MP_ROM_PTR(&seed_obj)},
    {MP_ROM_QSTR(MP_QSTR_bits), MP_ROM_PTR(&bits_obj)},
    {MP_ROM_QSTR(MP_QSTR_real), MP_ROM_PTR(&real_obj)},
};
static MP_DEFINE_CONST_DICT(globals, entries);

const mp_obj_module_t random_module = {.base = {&mp_type_module}, .globals = (mp_obj_dict_t *)&globals};
MP_REGISTER_MODULE(MP_QSTR__random, random_module);
