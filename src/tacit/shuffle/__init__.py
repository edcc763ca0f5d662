"""Shuffle privacy: private sums of users' vectors through a randomizer, a shuffler and an analyzer.

    from tacit.shuffle import OuterProducts, Shuffler, analyze, calibrate, randomize
    protocol = calibrate(OuterProducts(5), users=10_000, epsilon=1.0, delta=1e-6)

The three roles share messages and public parameters, nothing else; docs/guides/shuffle.md says who trusts
whom.
"""

from tacit.errors import AlreadyReleased, BatchTooSmall, CalibrationError
from tacit.shuffle.analyzer import analyze
from tacit.shuffle.calibration import (
    PaperParameters,
    calibrate,
    epsilon_at,
    matrix_report,
    paper_parameters,
    paper_rounds,
)
from tacit.shuffle.domains import Ball, Domain, OuterProducts
from tacit.shuffle.guarantee import Guarantee, guarantee
from tacit.shuffle.messages import Aggregate, ShuffledBits, report_bytes
from tacit.shuffle.optimizer import Minimum, gradient_descent
from tacit.shuffle.parameters import SumProtocol
from tacit.shuffle.planning import BatchPlan, PlannedRelease, SumRequest, plan_batch
from tacit.shuffle.randomizer import randomize, randomize_in_chunks
from tacit.shuffle.shuffler import Dropped, Shuffler
from tacit.shuffle.sums import sample_sum

__all__ = [
    "Aggregate",
    "AlreadyReleased",
    "Ball",
    "BatchPlan",
    "BatchTooSmall",
    "CalibrationError",
    "Domain",
    "Dropped",
    "Guarantee",
    "Minimum",
    "OuterProducts",
    "PaperParameters",
    "PlannedRelease",
    "ShuffledBits",
    "Shuffler",
    "SumProtocol",
    "SumRequest",
    "analyze",
    "calibrate",
    "epsilon_at",
    "gradient_descent",
    "guarantee",
    "matrix_report",
    "paper_parameters",
    "paper_rounds",
    "plan_batch",
    "randomize",
    "randomize_in_chunks",
    "report_bytes",
    "sample_sum",
]
