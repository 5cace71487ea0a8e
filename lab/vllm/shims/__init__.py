"""Changes to vLLM for machines without a GPU, and for processes that start in a moment."""
