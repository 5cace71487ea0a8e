"""HTTP: connections, bodies, access, errors, streams of events."""
