"""The HTTP layer: connections, bodies, access, errors, server-sent events."""
