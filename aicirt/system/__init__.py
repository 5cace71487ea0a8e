"""What the runtime needs of the operating system: files, processes, users, resources, logs, terminals."""
