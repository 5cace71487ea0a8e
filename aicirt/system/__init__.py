"""Everything about the operating system: files, processes, users, resources, logs, terminals."""
