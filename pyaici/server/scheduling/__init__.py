"""Who is served when: the engine's thread, its queues, and work in other threads."""
