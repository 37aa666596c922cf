"""Verdicts of claims about accuracy, and the repeats that would decide a claim of several cases."""

from pathlib import Path

import pytest

from experiments.claims.claim import judge
from experiments.claims.committed import Committed, Measured, mean_of
from experiments.claims.verdict import NOT_YET
from tests.experiments.test_claims import NUMERICS_CSV, claim, write

ROWS = "x,hardware\n2.5,CPU\n2.6,CPU\n2.5,CPU\n"


def test_every_file_behind_a_claim_of_accuracy_must_have_learned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path / "numerics.csv", NUMERICS_CSV + "other,1,0,3 repeats,none,1a2b3c4\n")
    for name in ("set", "other"):
        write(tmp_path / name / "table.csv", ROWS)
    monkeypatch.setattr(Committed, "runs", lambda _, folder: folder)
    monkeypatch.setattr(
        "experiments.claims.claim.too_short", lambda folder, _: "too short" if folder == "other" else ""
    )

    def both(committed: Committed, file: str) -> list[Measured]:
        return [mean_of("", committed.rows(each)["x"]) for each in (file, "other/table.csv")]

    rows = judge(claim(measure=both, is_accuracy=True), Committed(tmp_path))
    assert [(row["verdict"], row["why"]) for row in rows] == [(NOT_YET, "too short")] * 2
    (row,) = judge(claim(is_accuracy=True), Committed(tmp_path))
    assert row["verdict"] != NOT_YET


def test_too_short_trainings_decide_nothing_where_they_stand_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path / "numerics.csv", NUMERICS_CSV)
    write(tmp_path / "set" / "table.csv", ROWS)
    monkeypatch.setattr("experiments.claims.claim.too_short", lambda *_: "too short")
    (row,) = judge(claim(is_accuracy=True, stands_in="frozen features"), Committed(tmp_path))
    assert row["verdict"] == NOT_YET


def test_a_number_of_repeats_is_one_that_decides_all_undecided_cases(tmp_path: Path) -> None:
    write(tmp_path / "numerics.csv", NUMERICS_CSV)
    write(tmp_path / "set" / "table.csv", "x,hardware\n2.5,CPU\n")
    near, far = mean_of("near", [1.3, 1.9, 2.2]), mean_of("far", [1.2, 1.7, 2.25])
    alone = mean_of("alone", [1.8])

    def why(*cases: Measured) -> str:
        return str(judge(claim(measure=lambda *_: list(cases)), Committed(tmp_path))[0]["why"])

    counts = sorted(int(why(each).rpartition("n = ")[2].split()[0]) for each in (near, far))
    assert counts[0] < counts[1] and f"n = {counts[1]} would" in why(near, far)
    assert "would" not in why(near, alone)
