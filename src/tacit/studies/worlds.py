"""Environments of the studies, registered when this module is imported, as every process does that plays them."""

from __future__ import annotations

from tacit.environments import People, register_people
from tacit.studies.catalogue import STUDIES_OF_TRIALS
from tacit.studies.trials import TrialStudy


def _register(study: TrialStudy) -> None:
    def find() -> People:
        return study.people

    register_people(study.name, f"People of a trial: {study.title}.", find)


for _study in STUDIES_OF_TRIALS.values():
    _register(_study)
