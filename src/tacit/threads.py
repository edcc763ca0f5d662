"""One thread of BLAS around small matrices: several wait for each other many times as long as they work."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from functools import cache

from threadpoolctl import ThreadpoolController

_ONE_ANYWAY = 16
"""Lines up to which BLAS takes one thread by itself."""


@cache
def _libraries() -> ThreadpoolController:
    """The thread pools of this process; found once, which takes milliseconds."""
    return ThreadpoolController()


def one_blas_thread(dim: int | None = None) -> AbstractContextManager[object]:
    """A context in which BLAS uses one thread, for matrices of ``dim`` lines.

    Up to `_ONE_ANYWAY` lines nothing is said: it would cost more than the work.
    """
    return nullcontext() if dim is not None and dim <= _ONE_ANYWAY else _libraries().limit(limits=1, user_api="blas")
