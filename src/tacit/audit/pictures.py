"""The two distributions that an attacker has to tell apart, with the bound that follows from them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from tacit.audit.evidence import Evidence
from tacit.extras import named_extras

with named_extras():
    import matplotlib

matplotlib.use("Agg")  # no window, whatever the machine has

from matplotlib import pyplot as plt
from matplotlib.axes import Axes

_BLUE, _RED = "#0072B2", "#D55E00"
_COLUMNS = 2


def distributions(found: Sequence[Evidence], path: Path) -> None:
    """One panel for each set of samples: histograms of both worlds, claim and bounds in the title."""
    groups: dict[int, list[Evidence]] = {}
    for evidence in found:
        if evidence.samples is not None:
            groups.setdefault(id(evidence.samples), []).append(evidence)
    if not groups:
        return
    lines = -(-len(groups) // _COLUMNS)
    columns = min(_COLUMNS, len(groups))
    size = (6.0 * columns, 3.4 * lines)
    figure, axes = plt.subplots(lines, columns, figsize=size, squeeze=False, layout="constrained")
    for panel, group in zip(axes.flat, groups.values(), strict=False):
        _panel(panel, group)
    for panel in list(axes.flat)[len(groups) :]:
        panel.set_visible(False)
    figure.savefig(path, dpi=130)
    plt.close(figure)


def _panel(axes: Axes, group: Sequence[Evidence]) -> None:
    samples = group[0].samples
    assert samples is not None
    both = np.concatenate([samples.first, samples.second])
    low, high = np.quantile(both, [0.001, 0.999])
    bins = np.linspace(low, high + (1.0 if high == low else 0.0), min(61, 5 + int(np.sqrt(both.size))))
    for values, colour, label in ((samples.first, _BLUE, "row"), (samples.second, _RED, "replaced row")):
        style = {"histtype": "stepfilled", "alpha": 0.35, "color": colour, "label": label}
        axes.hist(values, bins=bins.tolist(), density=True, **style)  # type: ignore[arg-type]
        axes.axvline(float(np.mean(values)), color=colour, linewidth=1.0)
    bounds = ", ".join(f"{e.method} {e.lower_bound:.2f}" for e in group if e.lower_bound is not None)
    axes.set_title(f"{group[0].name}, epsilon {group[0].claim:g}: {group[0].verdict}\n{bounds}", fontsize=9)
    axes.set_xlabel("the attacker's statistic", fontsize=8)
    axes.set_yticks([])
    axes.legend(fontsize=8, frameon=False)
