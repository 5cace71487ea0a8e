"""The supervisor: accepts clients, stores modules, starts and watches workers. Never runs Wasm."""
