"""Requests with controllers as clients of vLLM send them: parameters, refusals and events."""
