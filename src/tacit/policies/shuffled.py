"""What policies of the shuffle model share: where a batch's randomness comes from, and what their report must say."""

from __future__ import annotations

import os

import numpy as np

from tacit.errors import InvalidInput
from tacit.privacy.noise import FastNoise, NoiseSource

_ROLES = (
    "this process plays devices, shuffler and analyzer at once, so that whoever runs it sees the rows; to serve "
    "people, run the roles of tacit.shuffle apart (docs/guides/shuffle.md)."
)
_GENERATOR = "bits come from a Philox generator that operating-system entropy keys anew for each batch."


def check_source(source: NoiseSource) -> None:
    """Refuse noise sources that a shuffled sum cannot use."""
    if source.name not in ("fast", "secure"):
        raise InvalidInput(
            f"noise must be 'fast' or 'secure', not {source.name!r}: the noise of a shuffled sum is binomial, integers "
            "by construction"
        )


def device_generator(source: NoiseSource) -> np.random.Generator:
    """Seeded runs go on with their own generator; all others take a key from the operating system each time."""
    if isinstance(source, FastNoise):
        return source.rng
    return np.random.Generator(np.random.Philox(key=int.from_bytes(os.urandom(16), "little")))


def shuffle_warnings(source: NoiseSource) -> tuple[str, ...]:
    """Who sees what when one process plays all roles, and which generator draws the bits."""
    return (_ROLES,) if isinstance(source, FastNoise) else (_ROLES, _GENERATOR)
