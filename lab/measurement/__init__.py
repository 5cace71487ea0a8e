"""Tools to measure: times and their statistics, memory, and a worker inside this process."""
