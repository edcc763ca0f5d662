"""The ablation by command: a line for each variant, paired with the default."""

from __future__ import annotations

import numpy as np
import pytest
from workloads import ablation


def test_the_table_has_a_line_for_each_variant(capsys: pytest.CaptureFixture[str]) -> None:
    ablation.main(["--runs", "1", "--horizon", "60", "--jobs", "1"])
    lines = capsys.readouterr().out.splitlines()
    assert [line.split("|")[1].strip() for line in lines[2:]] == ["default", *ablation.VARIANTS]
    assert all(line.count("|") == 2 + len(ablation.SETTINGS) * len(ablation.EPSILONS) for line in lines)


def test_differences_are_those_of_runs() -> None:
    default = {"regrets": [10.0, 20.0, 30.0], "regret_mean": 20.0, "regret_se": 5.8, "runs": 3, "seed": 1}
    other = default | {"regrets": [11.0, 22.0, 33.0]}
    lines = ablation.table(["one"], [default, *(other for _ in ablation.VARIANTS)], 1 + len(ablation.VARIANTS))
    error = float(np.std([1.0, 2.0, 3.0], ddof=1)) / 3**0.5
    assert f"| H not shrunk | +2.0 ± {error:.1f} |" in lines
    assert "| default | 20.0 ± 5.8 |" in lines


def test_each_variant_changes_the_policy() -> None:
    plain = ablation.SETTINGS["d = 5"]
    assert all(ablation.varied(plain, name).options for name in ablation.VARIANTS)
    assert ablation.varied(plain, ablation.OLD_PRIOR).options == {"prior": 5 / 7}
