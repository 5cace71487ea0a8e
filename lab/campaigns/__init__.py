"""Campaigns: long tests of what the runtime promises about untrusted code.

Each is a module with a function `run(campaign)` and a docstring that begins with a summary.
``python -m lab.campaigns NAME`` runs a campaign.
"""
