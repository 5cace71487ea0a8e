"""Inputs of the suites: vocabularies, constraints, grammars, and JSON schemas with instances."""
