"""Whole runs under scan policies: what they read and report, probes without traces, and resumption."""

import json
import logging
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from policy_runs import EPOCHS, POLICIES, decided, of_epochs

from pcr_exp.analysis.one_run import draw_run
from pcr_exp.config.loader import StorageConfig
from pcr_exp.config.scan import ScanConfig
from pcr_exp.errors import ConfigError, RunError
from pcr_exp.images.decode import decode, open_decoder
from pcr_exp.images.ms_ssim import ms_ssim
from pcr_exp.loading.fixed_sample import FixedSample, mean_similarities
from pcr_exp.policies.schedule import MixtureScan, ScheduleConfig
from pcr_exp.policies.smallest import MssimConfig
from pcr_exp.records.index import RecordIndex
from pcr_exp.records.reader import RecordSet
from pcr_exp.runs import session
from pcr_exp.runs.data import open_data
from pcr_exp.runs.directory import RunDirectory
from pcr_exp.runs.manifest import read_manifest
from pcr_exp.runs.rows import deterministic_part, read_rows
from pcr_exp.runs.train_run import run_training
from pcr_exp.storage.open import open_storage
from pcr_exp.training.trainer import Trainer


def test_schedule(run: Any, index: RecordIndex) -> None:
    folder, rows = run(POLICIES["schedule"])
    assert decided(rows) == [(0, 1), (1, 2), (3, 5)]
    assert of_epochs(rows, "record_bytes") == [index.epoch_bytes(group) for group in (1, 2, 2, 5, 5)]
    assert rows[-1]["probe_bytes"] == rows[-1]["probe_s"] == 0
    told = next(row for row in rows if row["kind"] == "policy" and row["epoch"] == 3)
    read = sum(index.epoch_bytes(group) for group in (1, 2, 2))
    assert told["bytes_saved"] == 3 * index.epoch_bytes(10) - read
    assert rows[-1]["full_bytes"] == EPOCHS * index.epoch_bytes(10), (
        "so that savings of the whole run are known"
    )
    manifest = read_manifest(folder / "manifest.json")
    assert (manifest.scan_group, manifest.mean_prefix_bytes) == (5, index.mean_prefix_bytes(5))
    name = "photos-photo-tiny-schedule_groups_1_2_5_milestones_1_3-unlimited-s0-"
    assert folder.name.startswith(name)


def test_mixture(run: Any, index: RecordIndex) -> None:
    _, rows = run(POLICIES["mixture"], loader__num_workers=1)
    policy = MixtureScan(5, [1, 2, 5, 10], [1, 1], seed=0)
    drawn = [
        sum(index.prefix_bytes(record, policy.group(epoch, record) or 0) for record in range(4))
        for epoch in range(EPOCHS)
    ]
    assert len(set(drawn)) > 1
    assert of_epochs(rows, "record_bytes") == drawn


def test_mssim_reads_the_group_that_its_threshold_asks_for(run: Any, configure: Any) -> None:
    folder, rows = run(POLICIES["mssim"], loader__decode="libjpeg")
    (choice,) = [row for row in rows if row["kind"] == "policy"]
    records: RecordSet = open_data(configure()).train
    prefixes = {group: [records.read_prefix(r, group) for r in range(2)] for group in (1, 2, 5, 10)}
    for group, prefix in prefixes.items():
        values = [
            ms_ssim(
                decode(prefixes[10][i // 16].encoded(i % 16)), decode(prefix[i // 16].encoded(i % 16))
            ).value
            for i in range(20)
        ]
        assert choice["scores"][str(group)] == pytest.approx(np.mean(values), abs=1e-12)
    reaching = [group for group in (1, 2, 5, 10) if choice["scores"][str(group)] >= 0.9]
    assert 1 not in reaching, "the threshold decides something"
    assert choice["group"] == min(reaching)
    assert (choice["step"], choice["measure"]) == (0, "ms_ssim")
    assert choice["probe_bytes"] == sum(prefix.num_bytes for prefix in prefixes[10])
    assert choice["probe_s"] > 0
    assert of_epochs(rows, "record_bytes") == [records.index.epoch_bytes(choice["group"])] * EPOCHS
    assert rows[-1]["bytes_read"] == rows[-1]["record_bytes"] + choice["probe_bytes"]
    assert read_manifest(folder / "manifest.json").scan_group == choice["group"]


def test_cosine_probes_on_its_epochs_and_obeys(run: Any, index: RecordIndex) -> None:
    _, rows = run(POLICIES["cosine"])
    start, *probed = [row for row in rows if row["kind"] == "policy"]
    assert (start["epoch"], start["group"], start["measure"]) == (0, 10, "given")
    assert [row["epoch"] for row in probed] == [1, 3]
    for row in probed:
        assert set(row["scores"]) == {"1", "2", "5", "10"}
        above = [int(group) for group, cosine in row["scores"].items() if cosine > 0.3]
        assert row["group"] == min([*above, 10])
        assert row["scores"]["10"] == 1.0
        assert all(-1 <= cosine < 1 for group, cosine in row["scores"].items() if group != "10")
    groups = [10, *[probed[0]["group"]] * 2, *[probed[1]["group"]] * 2]
    assert of_epochs(rows, "record_bytes") == [index.epoch_bytes(group) for group in groups]
    # The first two records hold the 20 images; the second probe finds them in memory.
    sample_bytes = sum(index.prefix_bytes(record, 10) for record in range(2))
    assert [row["probe_bytes"] for row in probed] == [sample_bytes] * 2
    assert probed[1]["probe_s"] > probed[0]["probe_s"] > 0


def test_plateau_tries_and_keeps_the_cheapest_near_the_best(run: Any, index: RecordIndex) -> None:
    _, rows = run(POLICIES["plateau"])
    start, tried, *_ = [row for row in rows if row["kind"] == "policy"]
    assert (start["epoch"], tried["epoch"], tried["measure"]) == (0, 3, "train_loss")
    losses = {int(group): loss for group, loss in tried["scores"].items()}
    assert tried["group"] == min(g for g, loss in losses.items() if loss <= 1.05 * min(losses.values()))
    assert len(set(losses.values())) == 3
    assert tried["probe_bytes"] > 0
    groups = [10, 10, 10, tried["group"], tried["group"]]
    assert of_epochs(rows, "record_bytes") == [index.epoch_bytes(group) for group in groups]


@pytest.mark.parametrize("name", ["cosine", "plateau", "tuned"])
def test_a_run_with_probes_is_the_run_without_until_the_group_changes(
    run: Any, name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """If probes always lead to group 10, rows are bit-identical to those of static group 10."""
    scores = session.Probes.run
    probed = []

    def keep(self: Any, probe: Any, progress: Any) -> dict[int, float]:
        found = scores(self, probe, progress)
        probed.append(found)
        return dict.fromkeys(found, 9.0) | {10: 1.0} if name != "cosine" else dict.fromkeys(found, 0.0)

    monkeypatch.setattr(session.Probes, "run", keep)
    _, rows = run(POLICIES[name], training__log_every_steps=1, runs_root=str(tmp_path / "probed"))
    _, static = run(ScanConfig(name="group_10"), training__log_every_steps=1)
    assert probed
    trained = [row for row in rows if row["kind"] != "policy"]
    assert deterministic_part(trained) == deterministic_part(static)
    after = [row for row in trained if row["kind"] == "train" and row["probe_s"] > 0]
    assert len(after) >= 8, "losses after a probe are among those compared"
    assert rows[-1]["probe_s"] > 0


def test_probes_see_the_run_s_own_decoder(run: Any, prepared: Path, tmp_path: Path) -> None:
    folder = next((prepared / "records").iterdir()) / "train"
    records = RecordSet(open_storage(str(folder), StorageConfig(name="unlimited")), "pcr")
    scores = {}
    for mode in ("libjpeg", "unsmoothed", "scaled"):
        config = MssimConfig(name="mssim", threshold=0.9, num_images=8, candidates=[1, 2])
        _, rows = run(config, loader__decode=mode, runs_root=str(tmp_path / mode))
        scores[mode] = rows[0]["scores"]["1"]
        sample = FixedSample(records, 8, decode=open_decoder(mode, "pcr"))
        assert scores[mode] == pytest.approx(mean_similarities(sample, [1])[1], rel=1e-6)
    assert len(set(scores.values())) == 3, "each mode shows the same scans in its own way"


def test_a_probe_s_loss_that_is_not_finite_stops_the_run_and_keeps_its_rows(
    configure: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    update, learned = Trainer.update, []

    def diverging(trainer: Trainer, *args: Any, **kwargs: Any) -> float:
        learned.append(kwargs["step"])
        loss = update(trainer, *args, **kwargs)
        return float("nan") if learned.count(kwargs["step"]) > 1 else loss

    monkeypatch.setattr(Trainer, "update", diverging)
    config = configure(scan=POLICIES["plateau"], training__epochs=EPOCHS)
    with pytest.raises(RunError, match=r"nan after step 12, at update 1 of the scan policy's trial of .* 5"):
        run_training(config, progress=False)
    (folder,) = Path(config.runs_root).iterdir()
    assert [row["step"] for row in read_rows(folder / "rows.jsonl") if row["kind"] == "eval"] == [4, 8, 12]
    manifest = json.loads((folder / "manifest.json").read_text())
    assert (manifest["status"], "trial of scan group 5" in manifest["error"]) == ("failed", True)


def test_a_policy_that_needs_images_to_tune_by_is_refused_without_any(
    configure: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(RecordIndex, "num_samples", property(lambda self: 0 if self.split == "tune" else 52))
    config = configure(scan=POLICIES["tuned"])
    with pytest.raises(ConfigError, match=r"scan.judge='tune': wanted train, because no image is held out"):
        run_training(config, progress=False)
    (folder,) = Path(config.runs_root).iterdir()
    assert RunDirectory(folder).status == "failed"


@pytest.mark.usefixtures("light_figures")
def test_a_policy_s_run_is_drawn(run: Any, index: RecordIndex) -> None:
    folder, rows = run(POLICIES["cosine"])
    drawn = draw_run(folder)
    assert set(drawn) == {"training_curve", "policy_trace"}
    trace = pd.read_csv(folder / "policy_trace.csv")
    assert len(trace) == 1 + 2 * 4
    assert trace["group"].tolist() == [g for _, g in decided(rows)[:1]] + [
        g for _, g in decided(rows)[1:] for _ in range(4)
    ]
    last = rows[-1]
    read, whole = last["record_bytes"] + last["probe_bytes"], EPOCHS * index.epoch_bytes(10)
    assert trace["run_saved_bytes"].tolist() == [whole - read] * len(trace), "of the whole run, probes paid"
    assert trace["run_saved_share"].iloc[-1] == pytest.approx(1 - read / whole)
    static, _ = run(ScanConfig(name="group_10"))
    assert set(draw_run(static)) == {"training_curve"}


def test_milestones_that_no_epoch_reaches_are_warned_of(
    configure: Any, caplog: pytest.LogCaptureFixture
) -> None:
    scan = ScheduleConfig(name="schedule", groups=[2, 5], milestones=[2])
    late = {"lr_milestones": [1, 2, 3], "schedule": "step", "input_milestones": [2], "input_sizes": [16, 32]}
    config = configure(scan=scan, **{f"training__{key}": value for key, value in late.items()})
    with caplog.at_level(logging.WARNING):
        run_training(config, progress=False)
    ends = "training.epochs=2 ends before anything changes at"
    wanted = "wanted milestones below 2, or more epochs"
    assert [message for message in caplog.messages if "milestones" in message] == [
        f"scan.milestones=[2]: {ends} [2]; {wanted}",
        f"training.input_milestones=[2]: {ends} [2]; {wanted}",
        f"training.lr_milestones=[1, 2, 3]: {ends} [2, 3]; {wanted}",
    ]


def test_milestones_within_the_epochs_are_not_warned_of(run: Any, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        run(POLICIES["schedule"], training__lr_milestones=[99])  # unused, as the rate decays by a cosine
    assert "milestones" not in caplog.text


def test_the_log_tells_what_was_decided(run: Any, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        run(POLICIES["schedule"])
    assert "epoch 3: scan group 5 by given {}" in caplog.text
