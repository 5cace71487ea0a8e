"""Access to this machine: processes, ports, published files, waiting."""
