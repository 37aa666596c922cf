"""What PCR claims of accuracy, and of the time that it takes to reach it (arXiv 1911.00472)."""

from __future__ import annotations

from dataclasses import replace
from math import inf

from experiments.claims.claim import FAIRLY_SURE, PROJECTED, READ, Claim, Measure
from experiments.claims.committed import BOOTSTRAP, OVER_REPEATS, Committed, Measured, difference_points
from experiments.claims.verdict import EQUAL, NEAR, Range, at_least, at_most, half_the_gain
from pcr_exp.system import MIB

MARGIN_POINTS, TARGET_POINTS = -1.0, -2.0
"""Nothing is lost: less than the first, as in experiments.tolerance. In part: no more than the second, as the
target of a fair baseline has it."""
FROZEN = "frozen features and a linear classifier, nothing was trained at a scan group"
TRAIN = "python -m experiments.train -m"
FINE_TUNE = f"{TRAIN} experiment=finetuning"
_TWELVE = "12 trainings of 15 minutes on one core, after results/fair_baseline has chosen rate and crop"


def of_groups(dataset: str, *groups: int) -> Measure:
    """Final score of runs trained at groups less that of baseline runs of the same seed, points.

    Nothing while a group has no runs yet.
    """

    def measure(committed: Committed, file: str) -> list[Measured]:
        if not {f"group_{group}" for group in groups} <= set(committed.rows(file)["scan"]):
            return []
        return [
            difference_points(
                f"group {group}",
                committed.row(file, f"dataset == '{dataset}' and scan == 'group_{group}'"),
            )
            for group in groups
        ]

    return measure


def at_half_the_bytes(committed: Committed, _: str) -> list[Measured]:
    """`of_groups` of three datasets at group 5."""
    return [
        replace(each, case=dataset)
        for dataset in ("cars", "celebahq", "ham10000")
        for each in of_groups(dataset, 5)(committed, f"finetuning/{dataset}/summary.csv")
    ]


def time_to_accuracy_at_group_5(committed: Committed, file: str) -> list[Measured]:
    """Times as soon at the target as baseline, projected, where storage and not compute limits group 5.

    Nothing while not every seed of both reached it.
    """
    level = committed.rows(file, "scan == 'group_5'").dropna(subset="speedup")
    from_storage = level["bandwidth_mib_per_s"] * MIB / level["image_bytes"]
    limited = level[from_storage < level["free_images_per_s"]]
    return [
        Measured(
            case=f"{row['bandwidth_mib_per_s']:.3g} MiB/s, projected",
            value=float(row["speedup"]),
            low=float(row["speedup_low"]),
            high=float(row["speedup_high"]),
            n=int(row["n"]),
            interval=OVER_REPEATS,
            freedom=int(row["n"]) - 1,
        )
        for row in limited.to_dict("records")
    ]


def coarse_loses_less(committed: Committed, file: str) -> list[Measured]:
    """Points that cars by model lose at group 1 more than coarser labels do, used at full fidelity.

    The interval is the widest that the 95 % intervals of the two losses allow.
    """
    query = "train_group == 1 and deployment == 'full'"
    fine = committed.row(file, query)
    found = []
    for task, words in (("cars_make", "make"), ("cars_is_corvette", "Corvette or not")):
        coarse = committed.row(f"tolerance/{task}/answers.csv", query)
        value, low, high = (
            100 * float(fine[of_fine] - coarse[of_coarse])
            for of_fine, of_coarse in (("loss", "loss"), ("loss_low", "loss_high"), ("loss_high", "loss_low"))
        )
        found.append(Measured(words, value, low, high, int(fine["n"]), BOOTSTRAP, inf))
    return found


def curvature_over_ms_ssim(committed: Committed, file: str) -> list[Measured]:
    """How far a task's score bends from a line over MS-SSIM, as a share of what it changes, by task."""
    tasks = committed.rows(file, "deployment == 'full'").drop_duplicates(["dataset", "label"])
    return [
        Measured(
            f"{row['dataset']} {row['label']}",
            float(row["curvature"]),
            float(row["curvature_low"]),
            float(row["curvature_high"]),
            n=int(row["n"]),
            interval=BOOTSTRAP,
            freedom=inf,
        )
        for row in tasks.to_dict("records")
    ]


def _fine_tuned(
    name: str, dataset: str, says: str, published: str, groups: tuple[int, ...], more: str
) -> Claim:
    return Claim(
        name=name,
        says=says,
        source="figures of accuracy against time",
        published=published,
        certainty=FAIRLY_SURE,
        ours="score fine-tuned at the group less at baseline, same seed, tested at full fidelity",
        unit="points",
        file=f"finetuning/{dataset}/summary.csv",
        measure=of_groups(dataset, *groups),
        holds=at_least(MARGIN_POINTS),
        partly=at_least(TARGET_POINTS),
        is_accuracy=True,
        shown_in="finetuning/README.md",
        command=f"{FINE_TUNE} dataset={dataset} dataset.root=../shared/data/{dataset}{more}",
        cost=_TWELVE,
    )


CLAIMS = [
    Claim(
        name="half the bytes suffice",
        says="Training tolerates images of less than half their bytes",
        source="abstract",
        published="tolerates more than 50 % compression",
        certainty=READ,
        ours="score fine-tuned at group 5 less at baseline, same seed, tested at full fidelity",
        unit="points",
        file="finetuning/ham10000/summary.csv",
        measure=at_half_the_bytes,
        holds=at_least(MARGIN_POINTS),
        partly=at_least(TARGET_POINTS),
        is_accuracy=True,
        shown_in="finetuning/README.md",
        command=f"{FINE_TUNE} dataset=ham10000 dataset.root=../shared/data/ham10000 task=balanced",
        cost=f"for each of three datasets {_TWELVE}",
    ),
    Claim(
        name="ImageNet at group 5",
        says="ImageNet trains as well on group 5",
        source="figures of accuracy against time",
        published="safe at group 5",
        certainty=FAIRLY_SURE,
        ours="ShuffleNetV2 from scratch on ten classes, group 5 less baseline, same seed, full fidelity",
        unit="points",
        file="from_scratch/imagenet/summary.csv",
        measure=of_groups("imagenet", 5),
        holds=at_least(MARGIN_POINTS),
        partly=at_least(TARGET_POINTS),
        is_accuracy=True,
        shown_in="from_scratch/README.md",
        command=f"{TRAIN} experiment=from_scratch dataset=imagenet dataset.root=../shared/data/imagenet",
        cost=_TWELVE,
    ),
    _fine_tuned(
        "HAM10000 at groups 1 and 2",
        "ham10000",
        "Skin lesions are told apart as well from groups 1 and 2",
        "tolerates groups 1 and 2",
        (1, 2),
        " task=balanced",
    ),
    _fine_tuned(
        "CelebA-HQ at groups 1 and 2",
        "celebahq",
        "Smiles are seen as well at groups 1 and 2",
        "tolerates groups 1 and 2",
        (1, 2),
        " training.epochs=6 training.eval_every_epochs=1 training.image_size=96",
    ),
    _fine_tuned(
        "Cars at group 5",
        "cars",
        "Car models are told apart as well from group 5",
        "needs about group 5",
        (5,),
        " training.epochs=24 training.eval_every_epochs=4",
    ),
    Claim(
        name="Cars below group 5",
        says="Car models are told apart worse from groups 1 and 2",
        source="figures of accuracy against time",
        published="needs about group 5",
        certainty=FAIRLY_SURE,
        ours="score fine-tuned at the group less at baseline, same seed, tested at full fidelity",
        unit="points",
        file="finetuning/cars/summary.csv",
        measure=of_groups("cars", 1, 2),
        holds=at_most(MARGIN_POINTS),
        partly=at_most(MARGIN_POINTS / 2),
        is_accuracy=True,
        shown_in="finetuning/README.md",
        command=(
            f"{FINE_TUNE} dataset=cars dataset.root=../shared/data/cars "
            "training.epochs=24 training.eval_every_epochs=4"
        ),
        cost=_TWELVE,
    ),
    Claim(
        name="coarser labels",
        says="Coarser labels of the same cars tolerate lower groups",
        source="figure of Cars relabelled: Make-Only, Is-Corvette",
        published="lower groups than by model",
        certainty=FAIRLY_SURE,
        ours="points that 32 models lose at group 1 more than the coarser label does",
        unit="points",
        file="tolerance/cars_model/answers.csv",
        measure=coarse_loses_less,
        holds=at_least(0),
        partly=at_least(MARGIN_POINTS),
        is_accuracy=True,
        stands_in=FROZEN,
        shown_in="tolerance/README.md",
    ),
    Claim(
        name="accuracy follows MS-SSIM",
        says="The change of accuracy is about linear in MS-SSIM",
        source="figure of accuracy against MS-SSIM",
        published="about linear",
        certainty=FAIRLY_SURE,
        ours="bend of a parabola through a task's scores over MS-SSIM, as a share of their change",
        file="tolerance/slopes.csv",
        measure=curvature_over_ms_ssim,
        holds=Range(-EQUAL, EQUAL),
        partly=Range(-NEAR, NEAR),
        is_accuracy=True,
        stands_in=FROZEN,
        shown_in="tolerance/README.md",
        command="python -m experiments.tolerance dataset=cars dataset.root=../shared/data/cars",
        cost="10 minutes of a core for each of six labels, at all ten groups",
    ),
    Claim(
        name="time to accuracy",
        says="The same accuracy is reached in about half the time",
        source="abstract; figures of accuracy against time",
        published="up to 2 x; version 1: 2 x on average",
        certainty=READ,
        ours=(
            "projected time of baseline to the target over that of group 5, where storage limits both (where "
            "compute limits, group 5 is slower): skin lesions (of smiles, not every seed of group 5 reaches "
            "it)"
        ),
        unit="x",
        file="time_to_target/ham10000/projected_times.csv",
        measure=time_to_accuracy_at_group_5,
        holds=at_least(2),
        partly=half_the_gain(2),
        is_accuracy=True,
        stands_in=PROJECTED,
        shown_in="time_to_target/README.md",
        command=(
            f"{TRAIN} experiment=seconds_per_epoch dataset=ham10000 dataset.root=../shared/data/ham10000 "
            "task=balanced dataset.images_per_record=32 storage.bandwidth_mib_per_s=0.1,0.2,0.4,0.8,1.6,null"
        ),
        cost="24 runs of a minute with the machine to themselves, after results/finetuning",
    ),
]
