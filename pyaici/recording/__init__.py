"""Recordings of the exchange between an engine and a controller."""
