"""Attacks that suites, campaigns and tests share: hostile modules, and a client that takes all CPU time."""
