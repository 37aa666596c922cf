"""Measures that claims are judged by, on synthetic files with known answers or on committed files."""

import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from experiments.claims.committed import Committed, mean_ratio
from experiments.claims.measures import pcr, related_methods
from pcr_exp.analysis.runs import read_runs
from pcr_exp.config.related_methods import EchoConfig
from pcr_exp.loading.echo.variants import BatchEchoConfig, ExampleBeforeConfig
from pcr_exp.runs.packed import pack_runs
from tests.experiments.test_claims import CLAIMS, COMMITTED, write


def test_a_difference_waits_for_the_runs_of_every_group(tmp_path: Path) -> None:
    head = "dataset,scan,difference_mean,difference_ci95,difference_n,difference_freedom,difference_interval"
    write(tmp_path / "a.csv", f"{head}\ncars,group_1,-0.02,0.01,3,11.5,t over seeds and images\n")
    (found,) = pcr.of_groups(Committed(tmp_path), "a.csv", groups=[1])
    assert (found.value, found.high, found.n) == (-2, -1, 3)
    assert (found.freedom, found.interval) == (11.5, "t over seeds and images")
    assert pcr.of_groups(Committed(tmp_path), "a.csv", groups=[1, 2]) == []


def test_a_choice_is_judged_by_static_runs_at_the_group(tmp_path: Path) -> None:
    quality = "dataset,group,ms_ssim_mean\n" + "".join(
        f"{dataset},{group},{0.9 + group / 100}\n"
        for dataset in ("cars", "celebahq", "ham10000", "imagenet")
        for group in (1, 5, 10)
    )
    write(tmp_path / "quality" / "overview.csv", quality)
    head = "scan,difference_mean,difference_ci95,difference_n,difference_freedom,difference_interval"
    for folder in ("finetuning/cars", "finetuning/celebahq", "from_scratch/imagenet_13394"):
        write(tmp_path / folder / "summary.csv", f"{head}\ngroup_5,-0.02,0.01,3,2,t\n")
    of_lesions = f"tested_at,{head}\nfull,group_1,-0.02,0.01,3,2,t\nsame,group_1,-0.05,0.01,3,2,t\n"
    write(tmp_path / "finetuning" / "ham10000_folds" / "deployment_top1.csv", of_lesions)
    found = pcr.loss_at_an_ms_ssim(Committed(tmp_path), "", at_least=0.95)
    assert {(each.case, each.value) for each in found} == {
        (f"{dataset}, group 5", -2) for dataset in ("cars", "celebahq", "imagenet")
    }


def test_a_policy_s_one_run_has_no_interval(tmp_path: Path) -> None:
    head = "scan,difference_mean,difference_ci95,difference_n,difference_freedom,difference_interval"
    write(tmp_path / "a.csv", f"{head}\ncosine,0,,1,,\n")
    (found,) = pcr.difference_of_policy(Committed(tmp_path), "a.csv", scan="cosine")
    assert found.value == 0 and math.isnan(found.low) and found.n == 1


def test_labels_are_compared_by_what_there_is_to_lose() -> None:
    """Makes and Corvettes lose less than models, also as a share of the score above the chance level."""
    found = pcr.coarse_loses_less(COMMITTED, "tolerance/cars_model/answers.csv")
    assert [each.case for each in found] == ["make", "Corvette or not"]
    assert all(0 < each.low < each.value for each in found)


def test_trained_labels_are_compared_by_what_there_is_to_lose(tmp_path: Path) -> None:
    """Models lose half of their 40 points above the largest class, and makes a fifth of their 50."""
    head = "scan,final_top1_mean,majority_share,difference_mean,difference_ci95,difference_n,"
    head += "difference_freedom,difference_interval"
    for folder, score, lost in (("cars", 0.5, 0.2), ("cars_make", 0.6, 0.1)):
        rows = [f"baseline,{score},0.1,0,0,3,2,", f"group_1,0.3,0.1,-{lost},0.02,3,4,t over folds and images"]
        write(tmp_path / f"finetuning/{folder}/summary.csv", "\n".join([head, *rows]) + "\n")
    (found,) = pcr.makes_lose_less(Committed(tmp_path), "finetuning/cars_make/summary.csv")
    assert (found.case, found.n) == ("make", 3)
    assert (found.low, found.value, found.high) == pytest.approx((21, 30, 39))


def test_errors_of_1_percent_are_judged_by_errors_of_1_percent() -> None:
    claim = next(each for each in CLAIMS if each.name == "errors of a share of the momentum")
    assert claim.measure is not None
    assert [each.case for each in claim.measure(COMMITTED, claim.file)] == ["0.01"]


def test_encoding_is_compared_by_repeat(tmp_path: Path) -> None:
    rows = ["records,0,3", "records,1,8", "tfrecord,1,2", "tfrecord,0,1"]
    write(tmp_path / "a.csv", "format,repeat,build_s\n" + "\n".join(rows) + "\n")
    (found,) = pcr.encode_time_over_tfrecord(Committed(tmp_path), "a.csv")
    assert found.value == 3.5


def test_time_to_accuracy_is_of_storage_that_limits_and_of_targets_that_all_reached(tmp_path: Path) -> None:
    """With images of 1 MiB and training at 2 images/s, 1 MiB/s is a limit and 4 MiB/s is not."""
    head = "scan,bandwidth_mib_per_s,image_bytes,free_images_per_s,speedup,speedup_low,speedup_high,n\n"
    rows = [
        "group_5,1,1048576,2,1.9,1.8,2,3",
        "group_5,4,1048576,2,1,0.9,1.1,3",
        "group_5,0.5,1048576,2,,,,3",
    ]
    write(tmp_path / "a.csv", head + "\n".join(rows) + "\n")
    (found,) = pcr.time_to_accuracy_at_group_5(Committed(tmp_path), "a.csv")
    assert (found.case, found.value, found.low, found.high, found.n) == ("1 MiB/s, projected", 1.9, 1.8, 2, 3)


def test_whole_trainings_are_compared_seed_by_seed() -> None:
    """Times are those of the first evaluation that reaches the target."""
    file = "time_to_target/whole/summary.csv"
    targets = {"celebahq": 0.85, "ham10000": 0.40}
    seconds: dict[tuple[str, str, int], float] = {}
    for run in read_runs(COMMITTED.root / Path(file).parent / "runs"):
        dataset = run.config["dataset"]["name"]
        reached = next(row for row in run.rows if row.get("val_score", 0) >= targets[dataset])
        level = dataset, run.config["scan"]["name"], run.config["seed"]
        seconds[level] = reached["train_s"] + reached["wait_s"]
    found = pcr.time_of_whole_trainings(COMMITTED, file, group=5)
    for dataset, measured in zip(targets, found, strict=True):
        ratios = [seconds[dataset, "baseline", seed] / seconds[dataset, "group_5", seed] for seed in range(3)]
        assert measured.value == pytest.approx(sum(ratios) / 3)
        assert measured.n == 3 and measured.low < min(ratios) < max(ratios) < measured.high


def test_echo_is_compared_seed_by_seed_and_by_what_limits() -> None:
    """Seconds are from the last row of each run. Storage is the limit at 1.5 MiB/s, not at 100 MiB/s."""
    seconds: dict[tuple[float, float, int], float] = {}
    for run in read_runs(COMMITTED.root / "echo_factor" / "runs"):
        bandwidth, factor = run.config["storage"]["bandwidth_mib_per_s"], run.config["echo"]["factor"]
        last = run.rows[-1]
        seconds[bandwidth, factor, run.config["seed"]] = last["train_s"] + last["wait_s"]
    slow, fast = (
        np.array([[seconds[bandwidth, factor, seed] for seed in range(8)] for factor in (1, 2)])
        for bandwidth in (1.5, 100)
    )
    (free,) = related_methods.cost_of_free_repeats(COMMITTED, "echo_factor/echo.csv")
    assert free.value == pytest.approx((slow[1] / slow[0]).mean()) and free.n == 8
    computing, sending = related_methods.speedup_where_reading_is_no_limit(
        COMMITTED, "echo_factor/echo.csv", beside="combined/combined.csv"
    )
    assert computing.value == pytest.approx((fast[0] / fast[1]).mean()) and computing.n == 8
    assert (computing.case, sending.case) == ("computing limits", "sending gradients limits")


@pytest.fixture
def echoes(tmp_path: Path, make_run: Callable[..., Path]) -> Committed:
    """Epochs of 64 samples to 60 %: baseline 4, samples 2, batches 4, 2 and 4; at a worse rate all take 4."""
    echoed = {
        "none": EchoConfig(),
        "sample": ExampleBeforeConfig(factor=2),
        "batch": BatchEchoConfig(factor=2),
    }
    for name, echo in echoed.items():
        for seed in range(3):
            epochs = 2 if name == "sample" or (name == "batch" and seed == 1) else 4
            last = 0.9 if name == "sample" else 0.8
            top1 = (*(0.1,) * (epochs - 1), *(0.7,) * (4 - epochs), last)
            make_run(tmp_path / "raw", "group_5", seed=seed, echo=echo, learning_rate=0.1, top1=top1)
            worse = (0.1, 0.1, 0.1, 0.7)
            make_run(tmp_path / "raw", "group_5", seed=seed, echo=echo, learning_rate=0.2, top1=worse)
    pack_runs(tmp_path / "raw", tmp_path / "results" / "echoes" / "runs")
    return Committed(tmp_path / "results")


def test_fresh_samples_are_compared_at_the_best_rate_with_one_scatter(echoes: Committed) -> None:
    """The interval is that of an analysis of variance with two ways, echoes and seeds, of logarithms."""
    pairs = [["baseline", "example before"], ["batch", "baseline"], ["example before", "batch"]]
    halves, batches, samples = related_methods.fresh_samples_over(echoes, "echoes/echo.csv", pairs=pairs)
    assert [each.case for each in (halves, samples)] == [
        "baseline / example before",
        "example before / batch",
    ]
    assert [each.value for each in (halves, batches, samples)] == pytest.approx(
        [2, 2 ** (-1 / 3), 2 ** (-2 / 3)]
    )
    logs = np.log(64.0) + np.log(2) * np.array([[2.0, 2, 2], [1, 1, 1], [2, 1, 2]])
    rest = logs - logs.mean(0) - logs.mean(1)[:, None] + logs.mean()
    half = stats.t.ppf(0.975, 4) * math.sqrt(2 * (rest**2).sum() / 4 / 3)
    assert halves.n == 3 and halves.freedom == pytest.approx(4)
    assert [halves.low, halves.high] == pytest.approx([2 * math.exp(-half), 2 * math.exp(half)])


def test_echoes_are_compared_at_the_rate_of_their_best_score(echoes: Committed) -> None:
    found = related_methods.score_of_echoes(echoes, "echoes/echo_top1_at_budget.csv")
    assert {each.case: each.value for each in found} == pytest.approx({"batch": 0, "example before": 10})


def test_the_fastest_design_is_compared_seed_by_seed() -> None:
    """The fastest rival varies as well, so each seed of 3LC is divided by the same seed of it."""
    rates: dict[tuple[str, int], float] = {}
    for run in read_runs(COMMITTED.root / "gradients" / "runs"):
        config = run.config
        if config["network"]["name"] == "10mbit" and config["gradients"].get("sparsity", 1.0) == 1.0:
            first, last = next(row for row in run.rows if row["kind"] == "train"), run.rows[-1]
            busy_s = sum(last[key] - first[key] for key in ("train_s", "wait_s"))
            name = config["gradients"]["name"] + ("" if config["gradients"].get("zero_run", True) else "!")
            rates[name, config["seed"]] = (last["samples_seen"] - first["samples_seen"]) / busy_s
    ratios = np.array([rates["threelc", seed] / rates["onebit", seed] for seed in range(8)])
    large, small = related_methods.speedup_over_the_best_other(COMMITTED, "gradients/gradients.csv")
    assert small.value == pytest.approx(ratios.mean()) and small.n == 8
    assert small.high - small.value == pytest.approx(2.3646 * ratios.std(ddof=1) / np.sqrt(8), rel=1e-4)
    assert [each.case for each in (large, small)] == ["resnet18, s=1.00", "shufflenet_v2_x0_5, s=1.00"]
    assert large.value > 1.5, "nothing but the network limits it"


def test_runs_of_different_machines_have_no_speed_up() -> None:
    runs = pd.DataFrame({"seed": [0, 1, 2], "images_per_s": [2.0, 4.0, 6.0], "timing_excluded_because": ""})
    ours, theirs = runs.assign(timing="one"), runs.assign(timing="one", images_per_s=[1.0, 2.0, 3.0])
    assert mean_ratio("", ours, theirs, "images_per_s").value == 2
    other = mean_ratio("", ours, theirs.assign(timing="another"), "images_per_s")
    assert math.isnan(other.value) and math.isnan(other.low)
