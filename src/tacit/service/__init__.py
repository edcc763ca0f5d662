"""Policies that outlive their process: a store, a journal for each policy, and what is built on them."""
