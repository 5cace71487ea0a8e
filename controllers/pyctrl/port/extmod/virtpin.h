/* virtpin.h - for py/mphal.h, which asks for it: there are no pins here. */
