"""Named checks, each of which a certain kind of fault cannot pass; a check returns what it found wrong."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from tests.mutants.checks import contract, life, noise, protocol
from tests.mutants.checks.replays import REPLAY_CHECKS, Check

CHECKS: Final[Mapping[str, Check]] = MappingProxyType(
    {
        **REPLAY_CHECKS,
        "noise scale": noise.noise_scale,
        "joint distribution of draws": noise.joint_draws,
        "fresh noise": noise.fresh_noise,
        "fresh exact noise": noise.fresh_exact_noise,
        "contract of choose": contract.choose_reads_no_secrets,
        "stream reference": noise.stream_reference,
        "play and select": noise.play_is_select_and_update,
        "late rows": noise.late_rows_contribute_alike,
        "exact noise": noise.exact_noise,
        "whole sums": noise.whole_sums,
        "resumed once": life.resumed_once,
        "rewards go on": life.rewards_go_on,
        "files that cannot be marked": life.unmarkable_files,
        "copies": life.copies_refused,
        "threads": life.one_call_at_a_time,
        "recovery": life.recovery,
        "errors of others": life.errors_of_others,
        "message width": protocol.message_width,
        "shuffled noise": protocol.shuffled_noise,
        "smallest batch": protocol.small_batch,
        "privacy loss of shuffled sums": protocol.privacy_loss,
    }
)

__all__ = ["CHECKS", "Check"]
