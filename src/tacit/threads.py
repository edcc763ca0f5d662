"""One thread of BLAS around small matrices: several wait for each other many times as long as they work."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from functools import cache
from typing import Any

from threadpoolctl import ThreadpoolController

from tacit.typing import FloatArray

_ONE_ANYWAY = 16
"""Lines up to which BLAS takes one thread by itself."""
_SMALL_PRODUCT = 1 << 18
"""Multiplications of two matrices up to which OpenBLAS takes one thread by itself."""
_VECTOR_WORK = 29
"""A product with a vector is small if that with so many would be as matrices."""

_AS_IT_IS = nullcontext()


@cache
def _libraries() -> list[Any]:
    """The BLAS libraries of this process; found once, which takes milliseconds."""
    return list(ThreadpoolController().select(user_api="blas").lib_controllers)


class _OneThread(AbstractContextManager[None]):
    """Sets every library that has more threads to one, and back: a third of the time that `threadpoolctl` takes."""

    def __enter__(self) -> None:
        counts = ((library, library.get_num_threads()) for library in _libraries())
        self._before = [(library, count) for library, count in counts if count != 1]
        for library, _ in self._before:
            library.set_num_threads(1)

    def __exit__(self, *error: object) -> None:
        for library, count in self._before:
            library.set_num_threads(count)


def one_blas_thread(dim: int | None = None) -> AbstractContextManager[None]:
    """A context in which BLAS uses one thread, for matrices of ``dim`` lines.

    Up to `_ONE_ANYWAY` lines nothing is said: it would cost more than the work.
    """
    return _AS_IT_IS if dim is not None and dim <= _ONE_ANYWAY else _OneThread()


def one_blas_thread_for(rows: FloatArray) -> AbstractContextManager[None]:
    """A context in which BLAS uses one thread for products of ``rows``, shape (..., d), with vectors and matrices of d.

    Small products it does in one thread by itself: nothing is said then.
    """
    return _AS_IT_IS if rows.size * max(rows.shape[-1], _VECTOR_WORK) <= _SMALL_PRODUCT else _OneThread()
