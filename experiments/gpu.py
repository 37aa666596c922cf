"""Studies that need a GPU for a few minutes each: memory and speed of updates, and short trainings.

    python -m experiments.gpu pack          # beforehand, elsewhere: copy some images of each dataset
    python -m experiments.gpu memory        # updates by activation mode, largest batches, NCCL
    python -m experiments.gpu training      # runs of seconds on the packed images: rates and data waits

Each writes outputs/gpu/<part>.csv, whose rows name the device, n and the commit. A case that already has
rows is not measured again. For the tests that need a GPU, run `python -m pytest -m gpu tests`.
"""

from __future__ import annotations

import sys
import time
from argparse import Namespace
from collections.abc import Callable, Iterator
from functools import partial
from itertools import product
from pathlib import Path

import torch

from experiments.comet.updates import largest_batch, measure_all_reduce, measure_updates, settings_of
from experiments.results.study import Row, Study, add_missing
from pcr_exp.analysis.reporting_rules import others_cpu_share
from pcr_exp.analysis.runs import read_timed_runs
from pcr_exp.config.commands import TrainConfig
from pcr_exp.config.compose import compose
from pcr_exp.datasets.sample import Dataset, open_dataset
from pcr_exp.errors import DatasetError
from pcr_exp.runs.train_run import run_training
from pcr_exp.system import MIB
from pcr_exp.system.provenance import cpu_model, git_state, gpu_model, num_cores
from pcr_exp.training.clocks import open_device
from pcr_exp.training.report import interval_rates

_SPLITS = ("train", "val")
Cases = Iterator[tuple[str, Callable[[], Row]]]


def pack(given: Namespace, device: torch.device) -> Cases:  # noqa: ARG001
    """Copy a random part of each dataset into class folders."""
    for name in given.datasets:
        yield f"images of {name}", partial(_packed, given, name)


def memory(given: Namespace, device: torch.device) -> Cases:
    """Yield the all-reduce case, then updates and largest batch by model, activation mode and precision."""
    num_bytes = int(given.reduce_mib * MIB)
    yield "all_reduce", partial(measure_all_reduce, device, num_bytes, given.num_updates)
    precisions = (True, False) if device.type == "cuda" else (False,)
    configs = {
        f"{model}, activations {activations}, {'amp' if amp else 'float32'}": train_config(
            given, model, f"activations={activations}", f"training.amp={amp}".lower()
        )
        for model, activations, amp in product(given.models, given.activations, precisions)
    }
    for words, config in configs.items():
        yield f"updates of {words}", partial(_updates, config, device, given.num_updates)
    for words, config in configs.items():
        yield f"the largest batch of {words}", partial(_largest, config, device, given.max_batch_size)


def training(given: Namespace, device: torch.device) -> Cases:
    """Yield runs of a few seconds on the real images below `--data-root`."""
    workers = max(0, num_cores() - 2) if given.num_workers is None else given.num_workers
    of_all = [
        *("dataset=folder", f"loader.num_workers={workers}", f"training.device={device}"),
        *(f"training.stop_after_s={given.run_s}", "training.epochs=1000", "training.exclusive=true"),
        *(f"runs_root={given.out / 'runs'}", f"records.root={given.out / 'records'}"),
    ]
    for dataset, model, storage, scan in product(given.datasets, given.models, given.storages, given.scans):
        of_case = [f"dataset.name={dataset}", f"dataset.root={given.data_root / dataset}"]
        run = train_config(given, model, *of_all, *of_case, f"scan={scan}", f"storage={storage}")
        yield f"{dataset} {model} {storage} {scan}", partial(_trained, run)


PARTS: dict[str, Callable[[Namespace, torch.device], Cases]] = {
    "pack": pack,
    "memory": memory,
    "training": training,
}


def train_config(given: Namespace, model: str, *overrides: str) -> TrainConfig:
    """Compose a run's settings as `experiments.train` does."""
    return compose(
        "train",
        TrainConfig,
        f"model={model}",
        f"training.image_size={given.image_size}",
        f"training.batch_size={given.batch_size}",
        "training.log_every_steps=1",
        *overrides,
        *given.overrides,
    )


def _packed(given: Namespace, name: str) -> Row:
    root = f"dataset.root={given.source_root / name}"
    settings = compose("train", TrainConfig, f"dataset={name}", root).dataset
    dataset = open_dataset(settings)
    count, num_bytes = copy_classes(dataset, settings.label, given.max_images, given.data_root / name)
    return {"n": count, "num_bytes": num_bytes}


def copy_classes(dataset: Dataset, label: str, max_images: int, root: Path) -> tuple[int, int]:
    """Copy the first images of train and val to `root/<split>/<class>/`, the layout of `dataset=folder`.

    A fifth of `max_images` is taken from val. A class is left out unless both splits have images of it. The
    dataset itself is not changed.

    Args:
        dataset: In its stable shuffled order, so that the first images are a random subset.
        label: The label whose classes name the folders.
        max_images: Maximum number of images in both splits together.
        root: The folder to create.

    Returns:
        Number of images copied, and their total bytes.

    Raises:
        DatasetError: `root` exists already, or fewer than two classes remain.
    """
    if root.exists():
        raise DatasetError(f"{root} is there already: delete it, or give another folder to copy to.")
    numbers = {"val": max(1, max_images // 5)}
    numbers["train"] = max_images - numbers["val"]
    chosen = {split: dataset.splits[split][: numbers[split]] for split in _SPLITS}
    kept = set.intersection(*({sample.labels[label] for sample in chosen[split]} for split in _SPLITS))
    if len(kept) < 2:
        raise DatasetError(
            f"{dataset.name}: {len(kept)} classes of {label!r} have images among the first {max_images}; "
            "wanted two or more. Copy more images."
        )
    num_images = num_bytes = 0
    for split in _SPLITS:
        for sample in chosen[split]:
            if sample.labels[label] in kept:
                folder = root / split / dataset.classes[label][sample.labels[label]]
                folder.mkdir(parents=True, exist_ok=True)
                content = sample.file.read_bytes()
                (folder / f"{num_images:06d}{Path(sample.id).suffix}").write_bytes(content)
                num_images, num_bytes = num_images + 1, num_bytes + len(content)
    return num_images, num_bytes


def _updates(config: TrainConfig, device: torch.device, num_updates: int) -> Row:
    return {**settings_of(config), **measure_updates(config, device, num_updates)}


def _largest(config: TrainConfig, device: torch.device, most: int) -> Row:
    return {**settings_of(config), "batch_size": largest_batch(config, device, most), "n": 1}


def _trained(config: TrainConfig) -> Row:
    name = run_training(config, progress=False).run_id
    (run,) = [run for run in read_timed_runs(config.runs_root) if run.manifest.run_id == name]
    first = next(row for row in run.rows if row["kind"] == "train")
    last = run.rows[-1]
    return {
        **settings_of(config),
        "dataset": run.manifest.dataset,
        "scan": config.scan.name,
        "storage": config.storage.name,
        "bandwidth_mib_per_s": config.storage.bandwidth_mib_per_s,
        "num_workers": config.loader.num_workers,
        "batch_size": config.training.batch_size,
        "n": last["step"] - first["step"],
        "image_bytes": run.manifest.mean_prefix_bytes,
        **interval_rates(first, last),
        "others_cpu_share": others_cpu_share(run.rows),
    }


def _row(case: str, work: Callable[[], Row], where: Row) -> list[Row]:
    return [{"case": case, **work(), **where}]


def measure(given: Namespace) -> None:
    """Measure one part. After `--max-s`, start no further case and print the names of those left out."""
    device, until_s = open_device(given.device), time.monotonic() + given.max_s
    git_sha, git_dirty = git_state()
    where = {
        "device": gpu_model(device) or cpu_model(),
        "num_cores": num_cores(),
        "torch": torch.__version__,
        "git_sha": git_sha,
        "git_dirty": git_dirty,
    }

    def cases() -> Iterator[tuple[Row, Callable[[], list[Row]]]]:
        for name, work in PARTS[given.part](given, device):
            if time.monotonic() > until_s:
                print(f"no time was left for {name} (--max-s {given.max_s:g})", file=sys.stderr)
                continue
            yield {"case": name}, partial(_row, name, work, where)

    add_missing(cases(), given.out / f"{given.part}.csv", lambda rows: rows.to_string(index=False))


main = Study(__doc__, "outputs/gpu", measure, repeats=None, images=False)
main.add("part", choices=PARTS)
main.add("--max-s", type=float, default=480, help="begin nothing new after so many seconds (%(default)s)")
main.add("--device", default="auto", help="cpu, cuda or another of torch's; auto: a GPU if there is one")
main.add("--models", nargs="+", default=["resnet18", "shufflenet_v2_x1_0"], help="options of `model`")
main.add("--image-size", type=int, default=224, help="pixels of a side of what models see")
main.add("--batch-size", type=int, default=128, help="images of an update")
main.add("--activations", nargs="+", default=["none", "recompute", "lossless", "error_bounded"])
main.add("--num-updates", type=int, default=20, help="that are timed, after a few that are not")
main.add("--max-batch-size", type=int, default=16384, help="the largest batch is looked for up to here")
main.add("--reduce-mib", type=float, default=64, help="size of what NCCL sums up")
main.add("--datasets", nargs="+", default=["ham10000", "celebahq"], help="options of `dataset`")
main.add("--source-root", type=Path, default=Path("../shared/data"), help="a folder for each of the datasets")
main.add("--max-images", type=int, default=400, help="of a dataset that `pack` copies")
main.add("--data-root", type=Path, default=Path("data/gpu"), help="what `pack` copies to, `training` reads")
main.add("--scans", nargs="+", default=["baseline", "group_1", "group_2", "group_5"])
main.add("--storages", nargs="+", default=["unlimited", "gigabit_nfs"])
main.add("--run-s", type=float, default=10, help="seconds of training and waiting of each run")
main.add("--num-workers", type=int, help="decoding processes; by default all cores but two")
main.add("--overrides", nargs="+", default=[], help="more settings, as of `experiments.train`")

if __name__ == "__main__":
    main()
