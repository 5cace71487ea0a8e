"""The contract between all processes and the guests.

Errors, messages, the ABI's numbers, and descriptions of modules and scripts.
"""
