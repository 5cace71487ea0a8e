"""The command `aici`: one module per subcommand, each with `add` (its arguments) and `run` (its work)."""
