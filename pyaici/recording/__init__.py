"""Recordings of what an engine and a controller say to each other."""
