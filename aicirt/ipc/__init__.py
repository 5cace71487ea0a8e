"""Everything that crosses a process boundary: messages, shared memory, doorbells, sockets.

Nothing here runs Wasm or knows an engine. `messages` is the one place that says
what is sent; docs/protocol.md explains it.
"""
