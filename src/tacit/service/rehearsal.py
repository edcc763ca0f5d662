"""A rehearsal: a policy of the same configuration plays a few rounds that no user is in.

It shows that the policy can play at all, before a policy of that configuration is kept.  The work of a release grows
with the cube of the features: a large policy is rehearsed by another process, which has so many seconds for it, while
this one goes on with its decisions.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
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


def rehearse(policy: str, config: Mapping[str, Any]) -> None:
    """Show that a policy can decide and learn, in bounded time; ``InvalidInput`` if it cannot."""
    if config["dim"] < _LARGE or policy not in POLICIES:  # no other process knows a policy of one's own
        _play(policy, config)
    else:
        _rehearse_elsewhere(policy, config)


def _rehearse_elsewhere(policy: str, config: Mapping[str, Any]) -> None:
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    command, asked = [sys.executable, "-m", "tacit.service.rehearsal"], json.dumps([policy, config])
    try:
        done = subprocess.run(
            command, input=asked, capture_output=True, text=True, timeout=_PATIENCE, env=environment, check=False
        )
    except subprocess.TimeoutExpired:
        raise InvalidInput(
            f"a policy with dim={config['dim']} did not decide and learn within {_PATIENCE:g} seconds: give it fewer "
            "features"
        ) from None
    if done.returncode:
        words = done.stdout.strip() if done.returncode == _REFUSED else "its rehearsal failed"
        raise InvalidInput(words or "its rehearsal failed")


def _play(policy: str, config: Mapping[str, Any]) -> None:
    """Let a throwaway policy with this configuration decide and learn."""
    kind = policy_class(policy)
    scratch = kind(kind.config_type.from_json(dict(config)))
    scratch.keep_log(lambda entry: None)  # as a served policy has: its releases pass through a publisher
    rows = np.zeros((1, 2, scratch.setting.dim))
    if scratch.config.features is None:  # rows of a schema have places that must stay empty
        rows[0, 0] = 1.0 / np.sqrt(scratch.setting.dim)
    arms = scratch.arm_form.rounds(rows)
    for _ in range(_ROUNDS):
        scratch.update(scratch.select_admitted(arms), 0.0)


def _main() -> None:
    """In another process: rehearse the policy that standard input names."""
    policy, config = json.load(sys.stdin)
    try:
        _play(policy, config)
    except TacitError as error:
        print(error)
        sys.exit(_REFUSED)


if __name__ == "__main__":
    _main()
