"""WebAssembly modules as files: reading, checking and rewriting them, without running them."""
