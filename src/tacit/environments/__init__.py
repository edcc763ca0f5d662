"""Problem instances.  theta*, regret and the best arm live here and nowhere else."""

from tacit.environments.synthetic import CONTEXT_KINDS, Block, Environment

__all__ = ["CONTEXT_KINDS", "Block", "Environment"]
