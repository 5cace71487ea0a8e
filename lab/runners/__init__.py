"""Controllers and functions of the SDK, run in this process."""
