"""Definiteness of symmetric matrices that carry noise; callers hold BLAS to one thread (`tacit.threads`)."""

from __future__ import annotations

import numpy as np
from scipy.linalg.lapack import dposv, dpotrf

from tacit.typing import FloatArray


def ridge_inverse(matrix: FloatArray, ridge: float) -> tuple[FloatArray, float]:
    """Inverse of ``matrix + ridge * I`` and the ridge, which is doubled until the sum is positive definite."""
    eye = np.eye(matrix.shape[0])
    _, inverse, failed = dposv(matrix + ridge * eye, eye)
    while failed:
        ridge *= 2.0
        _, inverse, failed = dposv(matrix + ridge * eye, eye)
    return np.asarray(inverse), ridge


def is_positive_definite(matrix: FloatArray) -> bool:
    """Whether a symmetric matrix has a Cholesky factor."""
    return bool(dpotrf(matrix)[1] == 0)
