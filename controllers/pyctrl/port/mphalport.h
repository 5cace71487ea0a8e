/* mphalport.h - the machine that MicroPython runs on; no part of MicroPython needs anything of it. */
