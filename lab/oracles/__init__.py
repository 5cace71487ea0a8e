"""Independent ways to find what is allowed, for comparison with the answers of controllers."""
