/* virtpin.h - empty; py/mphal.h includes it. */
