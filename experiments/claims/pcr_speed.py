"""What PCR claims of bytes and speed (Kuchnik, Amvrosiadis, Smith; PVLDB 14(11), arXiv 1911.00472)."""

from __future__ import annotations

import pandas as pd

from experiments.claims.claim import FAIRLY_SURE, READ, SURE, Claim, Measure
from experiments.claims.committed import Committed, Measured, all_of, exactly, mean_of
from experiments.claims.verdict import EQUAL, NEAR, around, at_least, at_most, half_the_gain
from experiments.pcr.model_validation import TOLERANCE

BOUND_BY_BYTES = 1.05
"""A measured speed-up may exceed the ratio of bytes by this factor."""
_REDUCED = {
    "cars": "cars_model",
    "celebahq": "celebahq_smiling",
    "ham10000": "ham10000_dx",
    "imagenet": "imagenet_wnid",
}
"""Datasets of images that are smaller than the published ones, and where their bytes are."""
_LOADERS, _MODEL = "throughput/loaders", "throughput_model/this_machine"
_RATES = f"{_MODEL}/predicted_vs_measured_rates.csv"


def share_of_bytes(group: int) -> Measure:
    """Bytes up to a scan group in % of the originals': native ImageNet, and the reduced datasets."""

    def measure(committed: Committed, file: str) -> list[Measured]:
        size = committed.rows(file, "decode == 'libjpeg'").set_index("loader")["epoch_bytes"]
        of_native = exactly("native ImageNet", 100 * size[f"group_{group}"] / size["baseline"])
        return [of_native, *_shares_of_reduced(committed, group)]

    return measure


def _shares_of_reduced(committed: Committed, group: int) -> list[Measured]:
    return [
        exactly(dataset, 100 * committed.row(f"tolerance/{task}/bytes.csv", f"group == '{group}'")["share"])
        for dataset, task in _REDUCED.items()
    ]


def mean_image_kb(committed: Committed, file: str) -> list[Measured]:
    """Mean size of the native ImageNet files that loaders are measured on, kB."""
    files = committed.row(file, "format == 'files'")
    return [exactly("", files["num_bytes"] / files["num_images"] / 1000, int(files["num_images"]))]


def images_per_s(committed: Committed, file: str, loader: str, bandwidth: float) -> pd.Series:
    """Images/s of a scan level at a bandwidth (MiB/s), by repeat."""
    found = committed.rows(file, f"loader == '{loader}' and bandwidth_mib_per_s == {bandwidth}")
    return found.set_index("repeat")["images_per_s"]


def speedup(committed: Committed, file: str, loader: str, bandwidth: float) -> pd.Series:
    """Images/s of a scan level over those of baseline records, by repeat."""
    ours, theirs = (images_per_s(committed, file, level, bandwidth) for level in (loader, "baseline"))
    return ours / theirs


def bandwidths_of(rows: pd.DataFrame) -> list[float]:
    """Bandwidths (MiB/s) that were measured at, from low to high."""
    return sorted(set(rows["bandwidth_mib_per_s"].dropna()))


def speedup_at_group_5(committed: Committed, file: str) -> list[Measured]:
    """The speed-up at group 5 where storage limits it: below the loader's speed without a throttle."""
    level = committed.rows(file, "loader == 'group_5'")
    unthrottled = level[level["storage"] == "unlimited"]
    image_bytes = (unthrottled["epoch_bytes"] * unthrottled["num_epochs"] / unthrottled["num_images"]).mean()
    free = unthrottled["images_per_s"].median()
    limits = [bandwidth for bandwidth in bandwidths_of(level) if bandwidth * 2**20 / image_bytes < free]
    return [mean_of(f"{limit:.3g} MiB/s", speedup(committed, file, "group_5", limit)) for limit in limits]


def speedup_over_byte_ratio(committed: Committed, file: str) -> list[Measured]:
    """The speed-up over baseline as a share of the ratio of bytes, at every throttle and scan group."""
    rows = committed.rows(file)
    size = rows.groupby("loader")["epoch_bytes"].first()
    found = [
        speedup(committed, file, level, bandwidth).mean() * size[level] / size["baseline"]
        for level in ("group_1", "group_2", "group_5", "group_10")
        for bandwidth in bandwidths_of(rows)
    ]
    return [all_of("", found)]


def predicted_over_measured(*bounds: str) -> Measure:
    """Predicted images/s over measured ones, in all cells that something limits."""

    def measure(committed: Committed, file: str) -> list[Measured]:
        return [
            all_of(
                f"limited by {bound.replace('in_flight', 'reads in flight')}",
                1 + committed.rows(file, f"not is_calibration and bound == '{bound}'")["error"],
            )
            for bound in bounds
        ]

    return measure


def size_over_baseline(committed: Committed, file: str) -> list[Measured]:
    """Bytes of progressive records in % of those of baseline records; of reduced datasets, of the files."""
    size = committed.rows(file).set_index("format")["num_bytes"]
    return [
        exactly("native ImageNet", 100 * size["pcr"] / size["baseline"]),
        *_shares_of_reduced(committed, 10),
    ]


def copies_over_records(committed: Committed, file: str) -> list[Measured]:
    """Bytes of the files and of static copies at groups 1, 2 and 5 over those of one set of records."""
    size = committed.rows(file).set_index("format")["num_bytes"]
    return [exactly("", size["files_and_copies"] / size["pcr"])]


def encode_time_over_tfrecord(committed: Committed, file: str) -> list[Measured]:
    """Seconds to write progressive records over those to write TFRecords; a row of each per repeat."""
    ours, theirs = (
        committed.rows(file, f"format == '{name}'")["build_s"] for name in ("records", "tfrecord")
    )
    return [mean_of("", ours.to_numpy() / theirs.to_numpy())]


def decode_time_over_baseline(committed: Committed, file: str) -> list[Measured]:
    """CPU time to decode all scans over that of the baseline file, by repeat."""
    rows = committed.rows(file, "decode == 'libjpeg'")
    found = rows.pivot(index="repeat", columns="scan", values="decode_us")
    return [mean_of("", found["group_10"] / found["baseline"])]


def same_outputs(committed: Committed, file: str) -> list[Measured]:
    """Images, in %, for which a network has the same loss from all scans as from the original file."""
    rows = committed.rows(file, "decode == 'libjpeg'")
    loss = rows.pivot(index="image", columns="scan", values="loss")
    return [exactly("", 100 * float((loss["group_10"] == loss["baseline"]).mean()), len(loss))]


CLAIMS = [
    Claim(
        name="half the bytes",
        says="Up to group 5, which the paper's datasets tolerate, an image has less than half its bytes",
        source="abstract (the group: figures of accuracy)",
        published="more than 50 % compression",
        certainty=f"{READ} (the group: {FAIRLY_SURE})",
        ours="bytes up to group 5 in % of the original files'; what accuracy makes of it is below",
        unit="%",
        file=f"{_LOADERS}/throughput_summary.csv",
        measure=share_of_bytes(5),
        holds=at_most(50),
        partly=at_most(75),
        shown_in="tolerance/README.md",
    ),
    Claim(
        name="twice the images/s",
        says="From storage that is too slow, training on less than half the bytes is about twice as fast",
        source="abstract",
        published="half the bandwidth, or up to 2 x as fast; version 1: 2 x on average",
        certainty=READ,
        ours="images/s at group 5 over baseline's, wherever bandwidth limits group 5; the loader alone",
        unit="x",
        file="throughput/throttled/throughput.csv",
        measure=speedup_at_group_5,
        holds=at_least(2),
        partly=half_the_gain(2),
        shown_in="throughput/throttled/throughput.md",
    ),
    Claim(
        name="no faster than the bytes",
        says="The speed-up over baseline is at most the ratio of bytes",
        source="throughput model",
        published="X(g) / X(baseline) <= E[s_baseline] / E[s_g]",
        certainty=SURE,
        ours="speed-up over the ratio of bytes, groups 1, 2, 5, 10 at every bandwidth",
        file="throughput/throttled/throughput.csv",
        measure=speedup_over_byte_ratio,
        holds=at_most(BOUND_BY_BYTES),
        partly=at_most(1 + NEAR),
        shown_in="throughput/throttled/throughput.md",
    ),
    Claim(
        name="throughput model",
        says="Images/s are the smallest of what compute, decoding and storage allow",
        source="throughput model",
        published="X(g) = min(X_compute, X_decode(g), W / E[s_g])",
        certainty=SURE,
        ours="predicted over measured images/s, one to four processes; every cell",
        file=_RATES,
        measure=predicted_over_measured("bandwidth", "compute", "decode"),
        holds=around(1, TOLERANCE),
        partly=around(1, NEAR),
        shown_in="throughput_model/README.md",
    ),
    Claim(
        name="reads in flight",
        says="With too few reads in flight, latency is the limit and not bandwidth (Little's law)",
        source="throughput model",
        published="items in flight = throughput x latency",
        certainty=SURE,
        ours="predicted over measured images/s at 200 ms a request; every cell",
        file=_RATES,
        measure=predicted_over_measured("in_flight"),
        holds=around(1, TOLERANCE),
        partly=around(1, NEAR),
        shown_in="throughput_model/README.md",
    ),
    Claim(
        name="lossless",
        says="All scans together are the original image: transcoding loses nothing",
        source="release (jpegtran -copy none -progressive)",
        published="lossless",
        certainty=SURE,
        ours="images for which a network has the same loss from all scans as from the file",
        unit="%",
        file="evaluate/imagenet_native/scores.csv",
        measure=same_outputs,
        holds=at_least(100),
        partly=at_least(99),
        shown_in="evaluate/README.md",
    ),
    Claim(
        name="size on disk",
        says="Records that serve every fidelity take as much space as the original images",
        source="space",
        published="about that of the baseline",
        certainty=FAIRLY_SURE,
        ours="bytes of progressive records in % of those of baseline records or files",
        unit="%",
        file=f"{_LOADERS}/formats.csv",
        measure=size_over_baseline,
        holds=around(100, EQUAL),
        partly=around(100, NEAR),
        shown_in="throughput/loaders/space_and_build_time.png",
    ),
    Claim(
        name="static copies",
        says="Copies at fixed qualities cost the sum of their sizes; one set of records replaces them",
        source="space",
        published="the sum of N copies against about one",
        certainty=FAIRLY_SURE,
        ours="bytes of the files and of copies at groups 1, 2 and 5, over those of one set of records",
        unit="x",
        file=f"{_LOADERS}/formats.csv",
        measure=copies_over_records,
        holds=at_least(1),
        partly=at_least(1 - EQUAL),
        shown_in="throughput/loaders/space_and_build_time.png",
    ),
    Claim(
        name="encode time",
        says="Encoding takes 1.13 to 2.05 times as long as writing TFRecords",
        source="encode time",
        published="1.13 to 2.05 x",
        certainty=FAIRLY_SURE,
        ours="seconds to write progressive records over seconds to write TFRecords",
        unit="x",
        file="records_speed/build_time.csv",
        measure=encode_time_over_tfrecord,
        holds=at_most(2.05),
        partly=at_most(2.05 * (1 + NEAR)),
        shown_in="records_speed/README.md",
    ),
    Claim(
        name="decode time",
        says="Decoding a progressive image takes 40 to 50 % longer",
        source="decode time",
        published="40 to 50 % slower",
        certainty=FAIRLY_SURE,
        ours="CPU time to decode all scans over that of the original, libjpeg-turbo, one core",
        unit="x",
        file="throughput/profile.csv",
        measure=decode_time_over_baseline,
        # Half as many images/s is the least favourable reading of "50 % slower".
        holds=at_most(2),
        partly=at_most(2 * (1 + NEAR)),
        shown_in="throughput/README.md",
    ),
    Claim(
        name="size of an image",
        says="An ImageNet image has about 116 kB",
        source="dataset table",
        published="116 kB (138 GiB over 1,281,167 images)",
        certainty=FAIRLY_SURE,
        ours="mean bytes of the native ImageNet files that speeds are measured on",
        unit="kB",
        file=f"{_LOADERS}/formats.csv",
        measure=mean_image_kb,
        holds=around(116, EQUAL),
        partly=around(116, NEAR),
        shown_in="throughput/loaders/throughput.md",
    ),
]
