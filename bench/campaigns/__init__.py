"""Campaigns against the runtime: ``python -m bench.campaigns NAME``. Each is a module here with
`SECONDS`, how long it takes unless told otherwise, and `run(report, seconds, seed)`."""
