"""Scan scripts: their scans, the content of their ids, and the scripts that are refused."""

from dataclasses import asdict
from typing import Any

import hydra
import pytest
from omegaconf import OmegaConf

from pcr_exp.config.commands import PrepareConfig, TrainConfig
from pcr_exp.config.components import schemas
from pcr_exp.config.compose import compose
from pcr_exp.config.describe import scan_label, scan_slug
from pcr_exp.config.records import RecordsConfig, codec_id_of, num_groups_of, records_name
from pcr_exp.config.scan import ScanConfig
from pcr_exp.config.scan_scripts import (
    DEFAULT,
    ScanOfScriptConfig,
    ScanScriptConfig,
    groups_of_script,
    script_of,
)
from pcr_exp.datasets.photos import PhotosConfig
from pcr_exp.errors import ConfigError
from pcr_exp.places import CONFIGS

NAMES = sorted(path.stem for path in (CONFIGS / "records.scans").glob("*.yaml"))


def scan(*components: int, first: int = 0, last: int = 0, high: int = 0, low: int = 0) -> ScanOfScriptConfig:
    return ScanOfScriptConfig(components=list(components), Ss=first, Se=last, Ah=high, Al=low)


def option(name: str) -> ScanScriptConfig:
    stated = OmegaConf.load(CONFIGS / "records.scans" / f"{name}.yaml")
    found: Any = OmegaConf.to_object(OmegaConf.merge(OmegaConf.structured(ScanScriptConfig), stated))
    return found


DC = scan(0, 1, 2)
Y, CB, CR = (scan(component, first=1, last=63) for component in range(3))


def test_the_default_is_the_paper_s() -> None:
    """Ids, and so records and runs, are the same as before scripts could be chosen."""
    script = option("default").script
    assert (script, script.id, script.num_groups) == (DEFAULT, "libjpeg-default", 10)
    assert RecordsConfig().codec_id == "libjpeg-default"
    assert [len(script.scans_of(n)) for n in (1, 3, 4)] == [6, 10, 18]
    assert str(script.scans[5]) == "0: 1-63, 2, 1;"
    assert ScanScriptConfig().script == DEFAULT


@pytest.mark.parametrize("name", NAMES)
def test_every_option_is_a_script_that_its_id_holds(name: str) -> None:
    config = RecordsConfig(scans=option(name))
    assert config.scans.name == name
    script = config.scans.script
    assert script_of(script.id) == script
    assert (config.codec_id, config.num_groups) == (script.id, len(script.scans))
    assert codec_id_of(asdict(config)) == script.id
    assert num_groups_of(asdict(config)) == config.num_groups
    dataset = PhotosConfig(name="photos", label="photo", images_per_record=64)
    is_default = records_name(dataset, script.id) == records_name(dataset)
    assert is_default == (name == "default")


def test_the_command_line_names_an_option() -> None:
    config = compose(
        "train", TrainConfig, "records.scans=spectral", "scan=full", "echo=finer_repeats", "echo.factor=2"
    )
    assert (config.records.scans.name, config.records.num_groups) == ("spectral", 6)
    assert (config.scan.group, config.scan.name) == (6, "group_6")
    assert config.echo.repeat_groups == [6]


def test_configurations_from_before_scripts_are_libjpeg_s() -> None:
    assert (codec_id_of({}), num_groups_of({})) == ("libjpeg-default", 10)
    assert codec_id_of({"codec": "mine"}) == "mine"


def test_an_option_that_is_not_there_is_refused_with_those_that_are() -> None:
    with pytest.raises(hydra.errors.MissingConfigException, match="spectral"):
        compose("prepare", PrepareConfig, "records.scans=other")


@pytest.mark.parametrize(
    ("scans", "reason"),
    [
        ([], r"scans=0: wanted 1 to 10 scans"),
        ([DC] * 11, "scans=11: wanted 1 to 10 scans"),
        ([scan(0), Y], r"scans\[0\]='0: 0-0, 0, 0;': wanted coefficient 0 of components"),
        ([DC, scan(0, 1, first=1, last=63)], r"scans\[1\].*of one component"),
        ([DC, scan(0, first=0, last=63)], r"scans\[1\].*Ss 0 with Se 0"),
        ([DC, scan(0, first=9, last=5)], r"Ss and Se in 1\.\.63"),
        ([DC, scan(0, first=9, last=64)], r"Ss and Se in 1\.\.63"),
        ([DC, scan(3, first=1, last=63)], r"components=\[3\]: wanted components among"),
        ([DC, scan(2, 1, high=1)], "each once and in order"),
        ([DC, Y, scan(0, first=1, last=63, low=11)], r"Ah and Al in 0\.\.10"),
        ([DC, Y, Y], "coefficient 1 of component 0 has earlier scans down to bit 0"),
        ([DC, scan(0, first=1, last=63, high=1)], "has no earlier scan: Ah is 0"),
        (
            [DC, scan(0, first=1, last=63, low=2), scan(0, first=1, last=63, high=2)],
            "has earlier scans down to bit 2: Ah is 2, and Al one less",
        ),
        ([DC, scan(0, first=1, last=63, low=1), CB, CR], r"all bits of component 0; its coefficients \[1, 2"),
        ([DC, Y, CB, scan(2, first=1, last=62)], r"component 2; its coefficients \[63\]"),
        ([DC, Y, CB, CR], "name='default': wanted default for libjpeg's script, and another name"),
    ],
)
def test_scripts_that_make_no_whole_image_are_refused(scans: list[ScanOfScriptConfig], reason: str) -> None:
    with pytest.raises(ConfigError, match=f"^records\\.(?=.*{reason})"):
        ScanScriptConfig(scans=scans)


@pytest.mark.parametrize("text", ["jpeg", "jpeg_", "other_0.0.0.0.0", "jpeg_0.1.2", "jpeg_012.0.0.0.x"])
def test_other_texts_are_no_ids(text: str) -> None:
    with pytest.raises(ValueError, match="is not the id of a scan script"):
        script_of(text)


def test_another_codec_has_no_scripts_of_jpeg() -> None:
    assert RecordsConfig(codec="mine").codec_id == "mine"
    with pytest.raises(
        ConfigError, match=r"records\.codec='mine': wanted libjpeg-default with records\.scans=spec"
    ):
        RecordsConfig(codec="mine", scans=option("spectral"))


def test_groups_follow_the_script() -> None:
    """Group 10, the last of libjpeg's script, stands for the last group of a shorter script."""
    assert groups_of_script("groups", [1, 2, 5, 10], 6) == [1, 2, 5, 6]
    assert groups_of_script("groups", list(range(1, 11)), 4) == [1, 2, 3, 4]
    assert groups_of_script("groups", [3, 10], 10) == [3, 10]
    with pytest.raises(ConfigError, match=r"groups=\[7\]: wanted scan groups of records\.scans, 1\.\.6"):
        groups_of_script("groups", [7], 6)


def test_a_level_is_called_by_its_script() -> None:
    spectral = RecordsConfig(scans=option("spectral"))
    static = ScanConfig(name="group_3", group=3)
    assert scan_label(static, spectral) == "group_3 of spectral"
    assert scan_slug(static, asdict(spectral)) == "group_3_of_spectral"
    assert scan_label(static, RecordsConfig()) == scan_label(static) == "group_3"
    assert scan_label(ScanConfig(name="baseline", encoding="baseline", group=1), spectral) == "baseline"


@pytest.mark.parametrize("name", ["mixture", "balanced", "schedule", "cosine"])
def test_policies_choose_among_the_groups_that_there_are(name: str) -> None:
    settings = schemas("scan")[name]
    given = {"floor": ScanConfig(name="group_10")} if name == "balanced" else {}
    config = settings(name=name, **given)
    config.fit(6)
    chosen = config.groups if name == "schedule" else config.candidates
    assert chosen == ([1, 2, 3, 4, 5, 6] if name == "balanced" else [1, 2, 5, 6])
    assert config.group in chosen
    assert name != "balanced" or config.floor.group == 6
    label = scan_label(config, RecordsConfig(scans=option("spectral")))
    assert label.startswith(name) and label.endswith(" of spectral") and "candidates" not in label


def test_a_static_level_of_all_groups_is_called_by_the_last() -> None:
    for name, group, num_groups, called in (
        ("full", 10, 10, "group_10"),
        ("full", 10, 6, "group_6"),
        ("group_10", 10, 6, "group_6"),
        ("group_3", 3, 6, "group_3"),
    ):
        config = ScanConfig(name=name, group=group)
        config.fit(num_groups)
        assert config.name == called
    with pytest.raises(ConfigError, match=r"scan\.group=\[7\]: wanted"):
        ScanConfig(name="group_7", group=7).fit(6)
