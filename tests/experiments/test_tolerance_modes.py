"""Decode modes compared on the same images."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from tolerance_rows import N, measured

from experiments.pcr import tolerance_modes as modes
from experiments.pcr.tolerance_modes import mode_page, mode_table
from pcr_exp.analysis.tolerance_page import load_tolerance, write_tolerance
from pcr_exp.errors import ConfigError

FROZEN = Path(__file__).parents[2] / "results" / "decode_modes" / "frozen"
AT_ALL_SCANS, AT_THE_SAME = (0, 2), (0, 0)

pytestmark = pytest.mark.usefixtures("light_figures")


def test_differences_are_of_the_same_images() -> None:
    """At group 1, libjpeg errs on 40 images and unsmoothed on 10; used at all scans, on 0 and 20."""
    libjpeg = measured({AT_THE_SAME: 40}, decode="libjpeg")
    unsmoothed = measured({AT_THE_SAME: 10, AT_ALL_SCANS: 20}, decode="unsmoothed")
    table = mode_table([unsmoothed, libjpeg]).set_index(["group", "deployment", "decode"])
    same, full = table.loc[1, "same", "unsmoothed"], table.loc[1, "full", "unsmoothed"]
    assert same["difference"] == pytest.approx(30 / N) and full["difference"] == pytest.approx(-20 / N)
    # 30 of 400 images differ: a binomial share's interval. The 10 that both err on do not widen it.
    half = 1.96 * np.sqrt(30 / N * (1 - 30 / N) / N)
    assert same["difference_low"] == pytest.approx(30 / N - half, abs=0.006)
    assert same["difference_high"] == pytest.approx(30 / N + half, abs=0.006)
    assert (table.xs("libjpeg", level="decode")["difference"] == 0).all()
    assert set(table.index.get_level_values("group")) == {1, 5}, "at all scans there is one mode"
    row = next(
        line for line in mode_page(table.reset_index()).splitlines() if "| unsmoothed | 97.5% |" in line
    )
    assert row.startswith("| it class | 400 | 1 | the same | unsmoothed | 97.5% | +7.5 (+")


def test_the_committed_table_follows_from_the_committed_predictions() -> None:
    table = mode_table([load_tolerance(folder) for folder in sorted(FROZEN.glob("*/*/"))])
    pd.testing.assert_frame_equal(table, pd.read_csv(FROZEN / "modes.csv"))
    assert mode_page(table) == (FROZEN / "modes.md").read_text()


def test_the_reference_is_wanted() -> None:
    with pytest.raises(ConfigError, match="with decode=scaled only; wanted decode=libjpeg"):
        mode_table([measured({}, decode="scaled")])


def test_modes_are_measured_alike() -> None:
    others = [measured({}, decode="scaled", image_size=96), measured({}, decode="libjpeg")]
    with pytest.raises(ConfigError, match="decode=scaled and decode=libjpeg differ in image_size too"):
        mode_table(others)
    turned = measured({}, decode="scaled")
    turned.labels[:] = 1 - turned.labels
    with pytest.raises(ConfigError, match="differ in the images too; measure them"):
        mode_table([turned, others[1]])


def test_the_command_reads_folders_and_writes_both_tables(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folders = []
    for decode in ("libjpeg", "scaled"):
        folders.append(str(tmp_path / decode))
        write_tolerance(Path(folders[-1]), measured({AT_THE_SAME: 4}, decode=decode), {})
    monkeypatch.setattr("sys.argv", ["modes", *folders, "--out", str(tmp_path / "out")])
    modes.main()
    assert (tmp_path / "out" / "modes.md").read_text() in capsys.readouterr().out
    assert len(pd.read_csv(tmp_path / "out" / "modes.csv")) == 2 * 2 * 2
