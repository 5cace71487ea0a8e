"""Benchmarks: ``python -m bench SUITE``. Each suite is a module of `bench.suites` with a function `run`."""
