"""vLLM engines and servers on a CPU, with a shallow model."""
