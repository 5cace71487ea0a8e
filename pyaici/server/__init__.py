"""The HTTP server: controllers as a service, and the APIs that clients already answer_deltas."""
