"""The studies by their names."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from tacit.studies.actg175 import ACTG175
from tacit.studies.penbased import PENBASED
from tacit.studies.star import STAR
from tacit.studies.thornton import THORNTON
from tacit.studies.trials import TrialStudy

STUDIES_OF_TRIALS: Mapping[str, TrialStudy] = MappingProxyType(
    {study.name: study for study in (ACTG175, THORNTON, STAR, PENBASED)}
)
"""Every study, in the order in which they are told."""
