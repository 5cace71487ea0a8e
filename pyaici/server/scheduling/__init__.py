"""Scheduling: the engine's thread, the queues in front of it, and work in other threads."""
