"""Controllers on disk: a content-addressed store, compilation with limits, tags.

Unlike `aicirt.wasm`, this package never runs a guest; compilation happens in a child process.
"""
