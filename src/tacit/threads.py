"""One thread of BLAS around small matrices: several wait for each other many times as long as they work."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from functools import cache
from typing import Any

from threadpoolctl import ThreadpoolController

_ONE_ANYWAY = 16
"""Lines up to which BLAS takes one thread by itself."""

_SMALL_PRODUCT = 1 << 18
"""Multiplications up to which BLAS takes one thread for a product of matrices by itself."""
_VECTOR_WORK = 29
"""A product with a vector takes one thread as long as that with so many vectors does."""
_AS_IT_IS = nullcontext()


@cache
def _libraries() -> list[Any]:
    """The BLAS libraries of this process; found once, which takes milliseconds."""
    return list(ThreadpoolController().select(user_api="blas").lib_controllers)


class _OneThread(AbstractContextManager[None]):
    """Sets every library that has more threads to one, and back; cheaper than ``ThreadpoolController.limit``."""

    def __enter__(self) -> None:
        counts = ((library, library.get_num_threads()) for library in _libraries())
        self._before = [(library, count) for library, count in counts if count not in (None, 1)]
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


def is_small_product(numbers: int, columns: int) -> bool:
    """Whether BLAS takes one thread by itself for the product of so many numbers with a matrix of so many columns."""
    return numbers * max(columns, _VECTOR_WORK) <= _SMALL_PRODUCT
