"""Character-prefix completion over HTTP: suggestions that begin with what has been typed."""
