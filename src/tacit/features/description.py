"""A schema in words and a table."""

from __future__ import annotations

import numpy as np

from tacit.features.layout import Layout


def described(layout: Layout, most: int) -> str:
    """The coordinates, their scales, the norm bound with its proof, and what the structure saves."""
    return "\n".join([*_table(layout, most), "", *_bound(layout), "", *_structure(layout)])


def _table(layout: Layout, most: int) -> list[str]:
    names, scales, blocks = layout.names, layout.coordinate_scales, layout.support.starts
    lines = [("", "coordinate", "largest value", "block")]
    listed = (
        range(layout.dim) if layout.dim <= most else [*range(most // 2), *range(layout.dim - most // 2, layout.dim)]
    )
    for i in listed:
        block = int(np.searchsorted(blocks, i, side="right")) - 1
        lines.append((str(i), names[i], f"{scales[i]:.6f}", str(block)))
    wide = [max(len(line[column]) for line in lines) for column in range(4)]
    text = [
        f"{number:>{wide[0]}}  {name:<{wide[1]}}  {scale:>{wide[2]}}  {block:>{wide[3]}}".rstrip()
        for number, name, scale, block in lines
    ]
    left_out = layout.dim - len(listed)
    middle = 1 + most // 2
    return text if not left_out else [*text[:middle], f"... {left_out:,} more ...", *text[middle:]]


def _bound(layout: Layout) -> list[str]:
    squares = " + ".join(f"{term.weight * term.weight:g} ({term.title})" for term in layout.terms)
    return [
        f"Norm: every row is divided by B = {layout.norm_bound:.9g} and multiplied by 1 - 2^-40, B^2 = {squares}.",
        "Proof: the squared norm of a row times B is a sum over terms, each at most its square in the line above;",
        "the record of schema.worst() attains all of these at once, so that the longest row has the norm 1 - 2^-40.",
    ]


def _structure(layout: Layout) -> list[str]:
    support, dim = layout.support, layout.dim
    every = dim * (dim + 1) // 2
    share = f"{support.size:,} of {every:,} entries of x x' ({100.0 * support.size / every:.3g}%)"
    return [
        f"Structure: {dim:,} coordinates in {support.blocks:,} block{'s' if support.blocks > 1 else ''}, at most "
        f"{support.width:,} of them nonzero in a row; {share} can be nonzero and are released."
    ]
