"""Interfaces to the operating system: files, processes, users, resources, logs, terminals."""
