"""The client of aicirt: the runtime, its steps, and the shared memory with each worker."""
