"""A rehearsal: a policy of the same configuration plays a few rounds with nobody in them.

It shows that the policy can play at all, and where kernels are compiled before their first call they are so afterwards.

Interpreted kernels take the cube of the features, which is hours for a thousand of them.  A large policy is therefore
rehearsed by another process first, which compiles into the cache and has so many seconds; this one then loads what
was compiled, and goes on with its decisions meanwhile.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from tacit._compile import compiling_here
from tacit._compile.modes import Mode, Switch
from tacit.errors import InvalidInput, TacitError
from tacit.policies.registry import POLICIES, policy_class

_ROUNDS: Final = 3
_LARGE: Final = 50
"""Features from which on interpreted kernels would take a second or more."""
_PATIENCE: Final = 120.0
"""Seconds that another process has: with nothing in the cache, compiling takes most of them."""
_PATIENCE_INTERPRETED: Final = 5.0
"""The same where compilation is switched off."""
_REFUSED: Final = 3
"""Exit code of a process whose policy was refused."""


def rehearse(policy: str, config: Mapping[str, Any]) -> None:
    """Show that a policy can decide and learn, in bounded time; ``InvalidInput`` if it cannot."""
    if config["dim"] < _LARGE or policy not in POLICIES:  # no other process knows a policy of one's own
        warm(policy, config)
        return
    _rehearse_elsewhere(policy, config)
    with compiling_here():
        warm(policy, config)


def _rehearse_elsewhere(policy: str, config: Mapping[str, Any]) -> None:
    patience = _PATIENCE_INTERPRETED if Switch.mode is Mode.NEVER else _PATIENCE
    compiled = {} if Switch.mode is Mode.NEVER else {"TACIT_COMPILE": Mode.NOW.value}
    environment = os.environ | compiled | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    command, asked = [sys.executable, "-m", "tacit.service.warming"], json.dumps([policy, config])
    try:
        done = subprocess.run(
            command, input=asked, capture_output=True, text=True, timeout=patience, env=environment, check=False
        )
    except subprocess.TimeoutExpired:
        raise InvalidInput(
            f"a policy with dim={config['dim']} did not decide and learn within {patience:g} seconds: give it fewer "
            "features, or have its kernels compiled beforehand (`tacit warm`)"
        ) from None
    if done.returncode:
        words = done.stdout.strip() if done.returncode == _REFUSED else "its rehearsal failed"
        raise InvalidInput(words or "its rehearsal failed")


def warm(policy: str, config: Mapping[str, Any]) -> None:
    """Let a throwaway policy with this configuration decide and learn, so that its kernels are compiled and loaded."""
    kind = policy_class(policy)
    scratch = kind(kind.config_type.from_json(dict(config)))
    scratch.keep_log(lambda entry: None)  # as a served policy has: its releases pass through a publisher
    rows = np.zeros((1, 2, scratch.setting.dim))
    if scratch.config.features is None:  # rows of a schema have places that must stay empty
        rows[0, 0] = 1.0 / np.sqrt(scratch.setting.dim)
    arms = scratch.as_kernels_take(rows)
    for _ in range(_ROUNDS):
        scratch.update(scratch.select_admitted(arms), 0.0)


def _main() -> None:
    """In another process: rehearse the policy that standard input names."""
    policy, config = json.load(sys.stdin)
    try:
        warm(policy, config)
    except TacitError as error:
        print(error)
        sys.exit(_REFUSED)


if __name__ == "__main__":
    _main()
