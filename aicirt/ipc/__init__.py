"""Transport between processes: shared memory, rings, doorbells, sockets.

Nothing here runs Wasm or depends on an engine. `aicirt.contract.messages` defines the messages;
docs/protocol.md explains them.
"""
