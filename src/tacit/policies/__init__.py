"""Policies: what to play for whom, and what to learn from it."""
