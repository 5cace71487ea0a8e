"""Servers that suites and campaigns start, and a measurement of completions over HTTP."""
