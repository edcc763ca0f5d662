"""A rehearsal: a policy of the same configuration plays a few rounds that no user is in.

It shows that the policy can play at all, before a policy of that configuration is kept, and how long a step of it takes
on this machine.  The work of a release grows with the cube of the features: a large policy is rehearsed by another
process, which has so many seconds for it, while this one goes on with its decisions.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final

import numpy as np

from tacit.errors import InvalidInput, TacitError
from tacit.policies.registry import POLICIES, policy_class

_ROUNDS: Final = 3
_LARGE: Final = 200
"""Features from which on a release takes tens of milliseconds."""
_PATIENCE: Final = 30.0
"""Seconds that another process has."""
_REFUSED: Final = 3
"""Exit code of a process whose policy was refused."""


def rehearse(policy: str, config: Mapping[str, Any]) -> float:
    """Show that a policy can decide and learn, in bounded time; ``InvalidInput`` if it cannot.

    Returns how many seconds its longest step took.
    """
    if _is_small(policy, config):
        return _play(policy, config)
    return _rehearse_elsewhere(json.dumps([policy, config]), config["dim"])


def longest_step(policy: str, config: Mapping[str, Any]) -> float:
    """Seconds that a step of a large policy takes here, or could take; 0 for one whose steps take next to nothing."""
    try:
        return 0.0 if _is_small(policy, config) else rehearse(policy, config)
    except InvalidInput:  # it was rehearsed before it was kept, and this machine has much else to do
        return _PATIENCE


def _is_small(policy: str, config: Mapping[str, Any]) -> bool:
    return config["dim"] < _LARGE or policy not in POLICIES  # no other process knows a policy of one's own


@lru_cache
def _rehearse_elsewhere(asked: str, dim: int) -> float:
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    command = [sys.executable, "-m", "tacit.service.rehearsal"]
    try:
        done = subprocess.run(
            command, input=asked, capture_output=True, text=True, timeout=_PATIENCE, env=environment, check=False
        )
    except subprocess.TimeoutExpired:
        raise InvalidInput(
            f"a policy with dim={dim} did not decide and learn within {_PATIENCE:g} seconds: give it fewer features"
        ) from None
    if done.returncode:
        words = done.stdout.strip() if done.returncode == _REFUSED else "its rehearsal failed"
        raise InvalidInput(words or "its rehearsal failed")
    return float(done.stdout)


def _play(policy: str, config: Mapping[str, Any]) -> float:
    """Let a throwaway policy with this configuration decide and learn; the longest round in seconds."""
    kind = policy_class(policy)
    scratch = kind(kind.config_type.from_json(dict(config)))
    scratch.keep_log(lambda entry: None)  # as a served policy has: its releases pass through a publisher
    rows = np.zeros((1, 2, scratch.setting.dim))
    if scratch.config.features is None:  # rows of a schema have places that must stay empty
        rows[0, 0] = 1.0 / np.sqrt(scratch.setting.dim)
    arms = scratch.as_steps_take(rows)
    times = [time.monotonic()]
    for _ in range(_ROUNDS):
        scratch.update(scratch.select_admitted(arms), 0.0)
        times.append(time.monotonic())
    return float(np.diff(times).max())


def _main() -> None:
    """In another process: rehearse the policy that standard input names."""
    policy, config = json.load(sys.stdin)
    try:
        print(_play(policy, config))
    except TacitError as error:
        print(error)
        sys.exit(_REFUSED)


if __name__ == "__main__":
    _main()
