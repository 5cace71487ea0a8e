"""Campaigns: what the runtime promises about strangers' code, tried many times.

Each is a module with a docstring that begins with a summary, and with a function `run(campaign)`;
``python -m bench.campaigns NAME`` runs one.
"""
