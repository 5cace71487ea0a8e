"""The worker process: runs the controllers of many sequences on one thread."""
