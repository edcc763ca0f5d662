"""Randomness that cannot be repeated: every draw without a seed begins with bytes of the operating system, read here.

Noise that protects people is made of these bytes, in all sources but the seeded one, and so are the coins of a policy
without a seed.  One function reads them, and nothing in the package replaces it or keeps what it gave: a forked process
and a restored state read anew.  Callers look the function up in this module at each call (`system_entropy.read`), so
that a test may put bytes of its own in its place.
"""

from __future__ import annotations

import os

import numpy as np


def read(count: int) -> bytes:
    """So many bytes from the operating system's cryptographic generator."""
    return os.urandom(count)


def key() -> int:
    """A number of 128 bits, to seed or key a generator with."""
    return int.from_bytes(read(16), "little")


def generator() -> np.random.Generator:
    """A generator that no other shares anything with; for what no privacy rests on, since it is not cryptographic."""
    return np.random.default_rng(key())
