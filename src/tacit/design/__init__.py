"""Optimal experimental design over finite arm sets."""

from tacit.design.g_optimal import g_optimal_design
from tacit.design.support import reduce_support

__all__ = ["g_optimal_design", "reduce_support"]
