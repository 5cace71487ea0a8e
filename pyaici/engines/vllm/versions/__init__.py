"""The versions of vLLM that AICI supports, and the names in them that it relies on."""
