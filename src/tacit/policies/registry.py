"""Policies by name.  Modules are imported when asked for, so that ``import tacit`` stays light."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from types import MappingProxyType
from typing import Any

from tacit.errors import CorruptState, InvalidInput, RecoveryWarning, TacitError
from tacit.policies import persistence
from tacit.policies.base import Policy

POLICIES: Mapping[str, str] = MappingProxyType(
    {
        "stream-glm": "tacit.policies.stream:StreamGLM",
        "joint-glm": "tacit.policies.joint:JointGLM",
        "shuffle-glm": "tacit.policies.shuffle:ShuffleGLM",
        "rs-glinucb": "tacit.policies.baselines.rs_glinucb:RsGlinUcb",
        "b-glincb": "tacit.policies.baselines.b_glincb:BatchedGlinCB",
        "glm-ucb": "tacit.policies.baselines.glm_ucb:GlmUcb",
        "gloc": "tacit.policies.baselines.gloc:Gloc",
        "ecolog": "tacit.policies.baselines.ecolog:Ecolog",
        "ofulog+": "tacit.policies.baselines.ofulog_plus:OfulogPlus",
        "greedy-mle": "tacit.policies.baselines.greedy_mle:GreedyMLE",
        "random": "tacit.policies.baselines.uniform:UniformRandom",
        "joint-linucb": "tacit.policies.baselines.joint_linucb:JointLinUcb",
        "shuffle-linucb": "tacit.policies.baselines.shuffle_linucb:ShuffleLinUcb",
        "local-glm": "tacit.policies.baselines.local_glm:LocalGLM",
    }
)


def policy_class(name: str) -> type[Policy]:
    """The class behind a policy's name."""
    if name not in POLICIES:
        raise InvalidInput(f"policy must be one of {', '.join(POLICIES)}, not {name!r}")
    module, _, attribute = POLICIES[name].partition(":")
    found: type[Policy] = getattr(import_module(module), attribute)
    return found


def make_policy(name: str, **arguments: Any) -> Policy:
    """Make the policy called ``name``.

    Every policy takes ``dim``, ``horizon``, ``link``, ``theta_bound``, ``reward_bound`` and ``seed``; private ones need
    ``epsilon`` and ``delta`` too.  Without a seed, noise comes from the operating system's entropy.
    """
    return policy_class(name)(**arguments)


def load(path: str | Path, *, recover: bool = False) -> Policy:
    """Go on from a saved state.  A private policy's state can be resumed once only.

    After a crash the file is stale: its policy went on, and is gone.  ``recover=True`` goes on from what was public in
    it (releases, ledger, clock, estimates) and drops everything else: raw sums, the open leaf or batch, rewards that
    were waited for.  No earlier row is then ever released again, so that it may be done any number of times, also from
    a file that cannot be written.  A warning and the privacy report say what was lost.
    """
    header, arrays = persistence.read(path, resumed_too=recover)
    try:
        policy = make_policy(header["policy"], **header["config"])
        policy._restore(header, arrays)
    except (KeyError, TypeError, IndexError, ValueError, TacitError) as error:
        raise CorruptState(f"{path} does not hold a complete state: {error}") from error
    if policy.setting.private and recover:
        warnings.warn(policy._recover(), RecoveryWarning, stacklevel=2)
    elif policy.setting.private:
        persistence.resume(path, header["token"])
    return policy
