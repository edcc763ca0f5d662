"""A rehearsal: a policy of the same configuration plays a few rounds with nobody in them.

It shows that the policy can play at all, and where kernels are compiled before their first call they are so afterwards.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from tacit.policies.registry import policy_class

_ROUNDS: Final = 3


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
