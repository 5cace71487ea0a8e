"""Controllers after vLLM's forward pass, in a logits processor."""
