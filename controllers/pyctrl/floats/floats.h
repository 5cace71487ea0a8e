/* floats.h - what the parts of the conversion between floats and text share. */
#ifndef AICI_PYCTRL_FLOATS_H
#define AICI_PYCTRL_FLOATS_H

/* A flag of mp_print_float besides those of py/mpprint.h: the format names no type, as in f"{x:8}". */
#define FLAG_WITHOUT_TYPE 0x400

#endif /* AICI_PYCTRL_FLOATS_H */
