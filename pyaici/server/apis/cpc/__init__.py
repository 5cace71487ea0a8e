"""Character-prefix completion over HTTP: texts that begin with what has been typed."""
