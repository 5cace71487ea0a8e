"""Ollama's own API, for editors that know no other."""
