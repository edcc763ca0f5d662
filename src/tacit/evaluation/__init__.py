"""What would a policy have earned?  Answers from logs of randomised experiments.

`make_trial` checks a log, `replay` plays policies that learn over it, and `private_value` releases what a fixed policy
earns under differential privacy.
"""

from __future__ import annotations

from tacit.evaluation.doubts import doubts
from tacit.evaluation.estimators import ValueEstimate, reward_model, self_normalised
from tacit.evaluation.private import PrivateValue, private_value
from tacit.evaluation.proposals import PublicFacts, proposed_schema, unknown_columns
from tacit.evaluation.replay import Contender, Pass, Replayed, Summary, estimates_of, fixed_values, replay, replay_pass
from tacit.evaluation.trials import Trial, make_trial, read_log

__all__ = [
    "Contender",
    "Pass",
    "PrivateValue",
    "PublicFacts",
    "Replayed",
    "Summary",
    "Trial",
    "ValueEstimate",
    "doubts",
    "estimates_of",
    "fixed_values",
    "make_trial",
    "private_value",
    "proposed_schema",
    "read_log",
    "replay",
    "replay_pass",
    "reward_model",
    "self_normalised",
    "unknown_columns",
]
