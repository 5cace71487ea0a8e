"""Controllers in vLLM's scheduler: what they answer, and what becomes of their requests."""
