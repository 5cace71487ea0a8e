"""The suites: each is a module whose docstring begins with a summary, with ``run(report: Report)``."""
