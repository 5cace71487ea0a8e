/* mphalport.h - what MicroPython's parts ask of the machine that they run on: nothing. */
