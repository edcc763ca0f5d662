"""Problem instances.  theta*, regret and the best arm are known here and nowhere else."""

from tacit.environments import synthetic as _synthetic  # registers kinds of the package's own, in the order of lists

# isort: split
from tacit.environments import records as _records
from tacit.environments.arrivals import ARRIVALS, NEVER, NOW, ArrivalKind, arrival_kind, register_arrivals
from tacit.environments.people import Outcomes, People, fitted_outcomes, register_people
from tacit.environments.records import SCHEMA, offered_arms
from tacit.environments.registry import (
    ENVIRONMENTS,
    Block,
    Environment,
    EnvironmentKind,
    EnvironmentSetting,
    Rounds,
    arms_of,
    environment_kind,
    make_environment,
    register_environment,
)

__all__ = [
    "ARRIVALS",
    "ENVIRONMENTS",
    "NEVER",
    "NOW",
    "SCHEMA",
    "ArrivalKind",
    "Block",
    "Environment",
    "EnvironmentKind",
    "EnvironmentSetting",
    "Outcomes",
    "People",
    "Rounds",
    "arms_of",
    "arrival_kind",
    "environment_kind",
    "fitted_outcomes",
    "make_environment",
    "offered_arms",
    "register_arrivals",
    "register_environment",
    "register_people",
]

del _records, _synthetic
