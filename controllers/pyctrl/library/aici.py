"""What scripts import."""
