"""The command `aici`: one module per subcommand, with `add` (its arguments) and `run` (its work)."""
