"""Random cases for the controllers of grammars, each checked against an oracle and other engines."""
