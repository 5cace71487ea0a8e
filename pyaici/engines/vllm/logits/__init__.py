"""The logits-processor path: controllers that run after vLLM's forward pass."""
