"""The HTTP server: controllers as a service, and the APIs that existing clients use."""
