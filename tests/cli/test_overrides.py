"""Errors about mistyped overrides show what to type instead."""

import shlex

import pytest
from composing import compose
from hydra.core.override_parser.overrides_parser import OverridesParser
from hypothesis import given
from hypothesis import strategies as st

from pcr_exp.cli.typed import check_overrides, quote, require_used, unknown_keys
from pcr_exp.errors import ConfigError


@pytest.mark.parametrize(
    ("typed", "to_type"),
    [
        ("dataset.root=~/photos", """'dataset.root="~/photos"'"""),
        ("dataset.root=/data/a=b", """'dataset.root="/data/a=b"'"""),
        ("dataset.root=/data/photos (1)", """'dataset.root="/data/photos (1)"'"""),
        ("dataset.root=/data/Füße", """'dataset.root="/data/Füße"'"""),
    ],
)
def test_a_path_that_hydra_cannot_read_is_told_with_its_quotes(typed: str, to_type: str) -> None:
    with pytest.raises(ConfigError, match="Type it in quotes: ") as raised:
        check_overrides(["seed=1", typed], sweeps=True)
    assert str(raised.value).endswith(to_type)


def test_a_comma_is_told_from_a_sweep() -> None:
    with pytest.raises(ConfigError, match=r"which needs -m\. Write a list as seed=\[a,b\], and .*\"0,1\"'$"):
        check_overrides(["seed=0,1"], sweeps=False)
    check_overrides(["seed=0,1"], sweeps=True)


def test_a_key_that_cannot_be_read_is_told_without_advice_on_quotes() -> None:
    with pytest.raises(ConfigError, match="--seed=1: Hydra cannot read this"):
        check_overrides(["--seed=1"], sweeps=False)


@pytest.mark.parametrize(
    ("typed", "way"),
    [
        ("records.storage_options.client_kwargs.aws_secret_access_key=Xy1", r"environment \(s3://: AWS_ACC"),
        ("+records.storage_options={client_kwargs:{sas_token:Xy1}}", r"AZURE_STORAGE_SAS_TOKEN"),
        ("records.root=https://me:Xy1@host/records", "PCR_EXP_HTTP_AUTHORIZATION"),
        ("records.root=https://host/records?sig=Xy1", "PCR_EXP_HTTP_AUTHORIZATION"),
        ("model.api_token=Xy1", r"type model\.api_token='\$\{oc\.env:NAME\}'"),
    ],
)
def test_a_secret_is_refused_before_a_sweep_or_a_run_writes_it_down(typed: str, way: str) -> None:
    with pytest.raises(ConfigError, match=rf"=\*\*\*: a secret, .*{way}") as raised:
        check_overrides(["seed=1", typed], sweeps=True)
    assert "Xy1" not in str(raised.value)
    check_overrides(["model.api_token='${oc.env:NAME}'", "+a.b={skip_signature:true}"], sweeps=True)


@pytest.mark.parametrize(
    ("typed", "told"),
    [
        ("scan=2", r"scan=2: wanted an option of scan, which are .*\. Did you mean scan=group_2\?$"),
        ("storage=5", r"storage=5: wanted an option of storage, which are [a-z0-9_, ]*\.$"),
        ("training=null", "training=null: wanted an option of training, which are"),
    ],
)
def test_a_number_is_no_option_of_a_group(typed: str, told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        check_overrides([typed], sweeps=False)
    check_overrides(["scan=group_2", "scan.group=2"], sweeps=False)


@pytest.mark.parametrize("scan", ["schedule", "mssim", "tolerance"])
def test_a_scan_group_that_a_policy_does_not_use_is_refused(scan: str) -> None:
    typed = [f"scan={scan}", "scan.group=7"]
    with pytest.raises(ConfigError, match=rf"^scan\.group=7: scan={scan} does not use it\. Leave it out"):
        require_used(compose("train", *typed), typed)
    require_used(compose("train", f"scan={scan}"), typed[:1])
    require_used(compose("train", "scan=cosine", "scan.group=7"), ["scan=cosine", "scan.group=7"])


def test_the_most_similar_setting_is_named() -> None:
    known = ["scan", "scan.group", "training.epochs", "records.storage_options"]
    given = [
        "training.epoch=2",
        "scna=group_2",
        "a=1",
        "records.storage_options.x=1",
        "+b=1",
        "~scan",
        "scan.group=1",
    ]
    assert unknown_keys(given, known) == [
        "training.epoch: there is no such setting. Did you mean training.epochs?",
        "scna: there is no such setting. Did you mean scan?",
        "a: there is no such setting. --help lists all settings.",
    ]


def test_what_can_be_read_is_left_alone() -> None:
    check_overrides(["a=/my photos/x", "+b=[1,2]", "~c", "d", "e={x: 1}", "f=", 'g="a,b"'], sweeps=False)


@given(st.text(st.characters(codec="utf-8", exclude_categories=["Cc", "Cs"]), max_size=12))
def test_what_is_quoted_means_itself_to_shell_and_hydra(value: str) -> None:
    (typed,) = shlex.split(quote("key", value))
    read = OverridesParser.create().parse_override(typed).value()
    assert getattr(read, "text", read) == value
