"""The card of a dataset on the Hub: what its records hold, and how they are opened."""

from __future__ import annotations

from pathlib import Path

from pcr_exp.datasets.sample import SPLITS
from pcr_exp.datasets.seen import some
from pcr_exp.records.index import INDEX_FILE, RecordIndex, parse_index

CARD_FILE = "README.md"
_NUM_CLASSES = 50
"""Classes of a label that are named."""
_HEAD = """---
# license: say here under which licence the photographs are, such as cc-by-4.0
viewer: false
tags:
- progressive-compressed-records
task_categories:
- image-classification
---
"""


def dataset_card(folder: Path, root: str) -> str:
    """A card in Markdown, whose licence is left to whoever knows it.

    Args:
        folder: Holds finished records, of all splits.
        root: The address below which they will lie, in a folder of the same name.

    Raises:
        RecordError: an index is damaged.
    """
    found = {split: folder / split / "pcr" / INDEX_FILE for split in SPLITS}
    indexes = {split: parse_index(path.read_bytes(), str(path)) for split, path in found.items()}
    train = indexes["train"]
    num_images = sum(index.num_samples for index in indexes.values())
    parts = [
        f"# {train.dataset}",
        f"{num_images:,} images as Progressive Compressed Records (format version 2, scans {train.scans}): a "
        "reader takes as many bytes of each image as its scan group says, with one request for each record.",
        f"""```python
import pcr_exp as pcr  # pip install 'pcr-exp[hub]'

train = pcr.open("{root}/{folder.name}/train", "group_{(train.num_groups + 1) // 2}")
for images, labels in train.loader(batch_size=256, image_size=224): ...
```""",
        _table(["split", "images", "records"], [
            [split, f"{index.num_samples:,}", f"{len(index.records):,}"] for split, index in indexes.items()
        ]),
        _table(["scan group", "bytes per image", "of all"], _bytes_of_groups(train)),
        *(f"Classes of `{label}`: {len(names):,} ({some(names, limit=_NUM_CLASSES)})."
          for label, names in train.classes.items()),
        "`baseline/` beside `pcr/` holds the original files.",
    ]  # fmt: skip
    return _HEAD + "\n" + "\n\n".join(parts) + "\n"


def _bytes_of_groups(index: RecordIndex) -> list[list[str]]:
    means = {group: index.mean_prefix_bytes(group) for group in range(1, index.num_groups + 1)}
    return [
        [str(group), f"{mean:,.0f}", f"{mean / means[index.num_groups]:.0%}"] for group, mean in means.items()
    ]


def _table(head: list[str], rows: list[list[str]]) -> str:
    lines = [head, ["---", *["---:"] * (len(head) - 1)], *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
