"""The HTTP APIs of the server, one package each, and what they share."""
