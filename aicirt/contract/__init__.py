"""What both sides of every process boundary, and the guests, agree on.

Errors, messages, the ABI's numbers, and descriptions of modules and scripts.
"""
