"""Optimal experimental design over finite arm sets."""

from tacit.design.g_optimal import Designs, g_optimal_designs, limit_support

__all__ = ["Designs", "g_optimal_designs", "limit_support"]
