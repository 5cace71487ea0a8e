"""The fork server: a process that has imported what workers and compilers need, and forks them."""
