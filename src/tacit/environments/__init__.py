"""Problem instances.  theta*, regret and the best arm are known here and nowhere else."""

from tacit.environments import synthetic as _built_in  # registers the package's own kinds
from tacit.environments.environment import Environment, make_environment
from tacit.environments.registry import (
    ENVIRONMENTS,
    EnvironmentKind,
    arms_of,
    environment_kind,
    register_environment,
)
from tacit.environments.setting import Block, Rounds, Setting

__all__ = [
    "ENVIRONMENTS",
    "Block",
    "Environment",
    "EnvironmentKind",
    "Rounds",
    "Setting",
    "arms_of",
    "environment_kind",
    "make_environment",
    "register_environment",
]

del _built_in
