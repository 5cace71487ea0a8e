"""Controllers in vLLM's workers: what masks cannot express, as it travels to them and is applied there."""
