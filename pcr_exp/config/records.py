"""Where records are stored, how they are named, and how they are made."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Annotated, Any

from pcr_exp.config.check import PATH, at_least, check_fields, each, one_of, require
from pcr_exp.config.components import component_of
from pcr_exp.config.credentials import credential_variables
from pcr_exp.config.dataset import DatasetConfig
from pcr_exp.config.mixture import MixtureConfig, refuse_mixture
from pcr_exp.config.scan_scripts import (
    DEFAULT,
    ScanOfScriptConfig,
    ScanScript,
    ScanScriptConfig,
    as_script,
)
from pcr_exp.config.scan_scripts import NUM_GROUPS as NUM_GROUPS
from pcr_exp.config.scan_scripts import SCANS as SCANS
from pcr_exp.redaction import HIDDEN, find_secret, redacted_text
from pcr_exp.system.keys import key_of

MAX_PIXELS = 120_000_000
"""Pixels; above the largest camera and telephone images (108 million). Decoding one takes 2 GB."""

FIELD_KINDS = ("array", "boxes", "json", "mask", "text")
"""Kinds of data stored with an image; see records/FORMAT.md."""
MAX_FIELDS = 8
_FIELD_NAME = re.compile("[a-z][a-z0-9_]{0,15}")
_FIELD_NAMES = each(
    lambda name: _FIELD_NAME.fullmatch(name) is not None and name != "label",
    "names of at most 16 letters a to z, digits and _, which begin with a letter; label is not allowed",
)


@dataclass(kw_only=True, slots=True)
class RecordsConfig:
    """Where records are written and read, and how they are made."""

    root: Annotated[str, PATH] = "data/records"
    """Local folder, s3://, gs://, az://, hf://, http(s):// or any fsspec address. A dataset's records are in
    `<root>/<dataset>-<key>`."""
    storage_client: Annotated[str, one_of("auto", "obstore", "fsspec")] = "auto"
    """Client that reads and writes a root with ://. `obstore` supports object stores and http; `fsspec` has
    many drivers (s3fs, gcsfs, ...). `auto` is huggingface_hub for hf://, and otherwise obstore if it is
    installed and supports the address."""
    storage_options: dict[str, Any] = field(default_factory=dict)
    """Settings of the client, such as `{endpoint: "http://...", region: ...}`, besides its environment
    variables (AWS_ENDPOINT_URL, AWS_REGION, ...). Secrets are refused at any depth: set them in the
    environment."""
    staging: Annotated[str, PATH] = "data/staging"
    """Local folder for records on their way to an object store. Finished records are not made again. It may
    be deleted once they have arrived."""
    on_error: Annotated[str, one_of("fail", "skip")] = "fail"
    """`fail` stops at the first image that cannot be stored faithfully; `skip` lists it in rejected.csv."""
    max_pixels: Annotated[int, at_least(1)] = MAX_PIXELS
    """Largest image (width x height) that is encoded or decoded; a file of 20 kB may claim a billion pixels.
    Images that were rejected for it stay missing from finished records."""
    on_change: Annotated[str, one_of("fail", "append", "reencode", "ignore")] = "fail"
    """Reaction to images that changed since their records were made. `fail` names them; `append` adds records
    of new images; `reencode` makes all records anew; `ignore` uses the records as they are."""
    codec: str = SCANS["pcr"]
    """Codec that divides images into scan groups, as registered in `images.codec`. Baseline records always
    store files whole. Records of codecs other than JPEG's have a folder of their own."""
    scans: ScanScriptConfig = field(default_factory=ScanScriptConfig)
    """Script that divides JPEG files into scans, and so into groups; `records.scans=<option>`."""
    reuse_from: str | None = None
    """Local folder of existing records. Images that they contain byte for byte are copied instead of
    transcoded."""
    num_workers: Annotated[int, at_least(1)] = 2
    """Threads that encode images."""
    engine: Annotated[str, one_of("local", "ray")] = "local"
    """`local` encodes with `num_workers` threads; `ray` makes each record in a task of a Ray cluster, whose
    machines must all have access to the images and `root`."""
    ray_address: str | None = "auto"
    """The cluster's address. `auto`: from RAY_ADDRESS, or this machine's; null: start one on this machine."""
    fields: Annotated[list[str], _FIELD_NAMES] = field(default_factory=list)
    """Names of the dataset's fields to store with its images, such as [mask, boxes]. Records with fields have
    a folder of their own."""
    auto_prepare: bool = True
    """Let training and quality make missing records."""

    def __post_init__(self) -> None:
        check_fields(self, "records")
        variables = credential_variables(self.root)
        wanted = f"no secret, which would be written into runs: set {variables} in the environment"
        shown = redacted_text(self.root)
        require(shown == self.root, "records.root", shown, wanted)
        secret = find_secret(self.storage_options, "records.storage_options")
        require(secret is None, str(secret), HIDDEN, wanted)
        distinct = len(set(self.fields)) == len(self.fields) <= MAX_FIELDS
        require(distinct, "records.fields", self.fields, f"at most {MAX_FIELDS} names, each once")
        alone = self.engine == "local" or self.reuse_from is None
        require(alone, "records.reuse_from", self.reuse_from, "null with records.engine=ray")
        plain = self.codec == SCANS["pcr"] or self.codec_id == self.codec
        wanted = f"{SCANS['pcr']} with records.scans={self.scans.name}: scan scripts need the JPEG codec"
        require(plain, "records.codec", self.codec, wanted)

    @property
    def num_groups(self) -> int | None:
        """Scan groups of these records; None for codecs other than JPEG's, which define their own."""
        return self.scans.script.num_groups if self.codec == SCANS["pcr"] else None

    @property
    def codec_id(self) -> str:
        """Id of the codec that divides these records: for JPEG, that of the scan script."""
        return _codec_id(self.codec, self.scans.script)


def codec_id_of(records: Mapping[str, Any]) -> str:
    """Return `RecordsConfig.codec_id` for the records in a run's `config.yaml` (default: libjpeg's)."""
    return _codec_id(records.get("codec", SCANS["pcr"]), script_of_records(records))


def _codec_id(codec: str, script: ScanScript) -> str:
    return codec if script == DEFAULT else script.id


def num_groups_of(records: Mapping[str, Any]) -> int:
    """Return the number of scan groups of the records in a run's `config.yaml` (default: ten)."""
    return script_of_records(records).num_groups


def script_of_records(records: Mapping[str, Any]) -> ScanScript:
    """Return the scan script of the records in a run's `config.yaml` (default: libjpeg's)."""
    scans = records.get("scans")
    return DEFAULT if scans is None else as_script([ScanOfScriptConfig(**scan) for scan in scans["scans"]])


_WITHOUT_EFFECT = (
    *("name", "root", "label", "targets", "max_tune_images", "max_val_images", "augment", "paper"),
    *("table", "columns", "on_error"),
)
"""Dataset settings that change no byte of its records: locations of images and labels, and their later
use."""


def records_name(dataset: DatasetConfig, codec: str = SCANS["pcr"], beside: Sequence[str] = ()) -> str:
    """Return a dataset's records folder: its name and a key of all settings that change the records' bytes.

    The key ignores the dataset's folder, so that both can be moved. Two datasets of the same kind need
    different names.

    Raises:
        ConfigError: it is a mixture, whose sources have a folder each.
    """
    if isinstance(dataset, MixtureConfig):
        refuse_mixture(dataset)
    fields = {key: value for key, value in asdict(dataset).items() if key not in _WITHOUT_EFFECT}
    name = dataset.name
    if dataset.folds:  # records from before folds existed keep their names
        name += f"-fold_{dataset.fold}_of_{dataset.num_folds}"
        fields.pop("val_fraction", None)
    else:
        del fields["fold"], fields["num_folds"]
    fields["kind"], _ = component_of("dataset", dataset)
    if codec != SCANS["pcr"]:  # records from before codecs could be chosen keep their names
        fields["codec"] = codec
    if beside:  # likewise, records without fields keep their names
        fields["beside"] = sorted(beside)
    return f"{name}-{key_of(fields)}"
