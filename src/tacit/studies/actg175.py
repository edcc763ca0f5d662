"""ACTG 175: four treatments of HIV, given by chance."""

from __future__ import annotations

from typing import Final

import numpy as np

from tacit.features import Category, Schema
from tacit.studies.data import table_of_actg175
from tacit.studies.trials import ARM, REWARD, TrialStudy, TrialTable, lighter_flag, lighter_number

_DRUGS: Final = ("zidovudine", "zidovudine + didanosine", "zidovudine + zalcitabine", "didanosine")


def _actg175() -> TrialTable:
    found = table_of_actg175()
    traits = ("age", "wtkg", "hemo", "homo", "drugs", "karnof", "oprior", "z30", "preanti", "race", "gender", "str2")
    columns = {name: found[name] for name in ("age", "karnof", "wtkg", "cd40")}
    columns |= {name: found[name] == 1.0 for name in ("str2", "symptom")}
    columns[ARM] = np.array(_DRUGS, dtype=object)[found["arms"].astype(np.int64)]
    columns[REWARD] = (found["cd420"] > found["cd40"]).astype(np.float64)
    return TrialTable(columns, np.stack([found[name] for name in (*traits, "symptom", "cd40", "cd80")], axis=1))


ACTG175: Final = TrialStudy(
    name="actg175",
    title="ACTG 175: four treatments of HIV, 1991 to 1995",
    randomised=(
        "Patients, each with equal chances for four treatments, within strata by how long they had been "
        "treated before (Hammer et al. 1996; data of the package lifelines)."
    ),
    rewarded="1 if the CD4 count was higher 20 weeks later than at the start, else 0.",
    limits=(
        "Nearly all of the gain is one arm, zidovudine + didanosine for everybody: the trial does not show that "
        "the best treatment differs from patient to patient. Compare the rows with the arm alone: features cost "
        "decisions, and bring next to nothing here."
    ),
    schema=Schema(
        user=[
            lighter_number("age", 12, 70),
            lighter_number("wtkg", 40, 120),
            lighter_number("karnof", 70, 100),
            lighter_number("cd40", 200, 500),
            lighter_flag("str2"),
            lighter_flag("symptom"),
        ],
        arm=[Category(ARM, _DRUGS)],
        per_arm=ARM,
    ),
    theta_bound=4.0,
    alone_bound=1.5,
    read=_actg175,
)
