"""Fuzzing guided by coverage: targets, their first inputs, how they are built and run."""
