"""The suites. Each is a module with ``run(report: Report)`` and a docstring that begins with a summary."""
