"""Coverage-guided fuzzing: the targets, their first inputs, and how they are built and run."""
