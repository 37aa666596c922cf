"""A run's configuration, read back from its directory."""

from typing import Any

import pytest
import yaml
from hypothesis import given, reject
from hypothesis import strategies as st
from omegaconf import OmegaConf
from omegaconf.errors import ConfigTypeError, GrammarParseError

from pcr_exp.errors import RunError
from pcr_exp.runs.directory import RunDirectory, claim

IMAGES = "0123456789abcdef"
# Strings that some readers of YAML take for another type.
LOOK_LIKE_OTHERS = [
    *("1e-5", "2026-11-22", "012", "0x1f", "1:30", "yes", "off", "~"),
    *(".inf", "1_000", "=", "<<", "nan"),
]
VALUES = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.sampled_from(LOOK_LIKE_OTHERS)
    | st.text(st.characters(codec="ascii"))
)


@pytest.mark.parametrize("text", ["- 1", "a: [1", "a: \x01"])
def test_a_damaged_configuration_is_told(configure: Any, text: str) -> None:
    with claim(configure(), IMAGES) as directory:
        pass
    directory.config_path.write_text(text)
    with pytest.raises(RunError, match=r"config\.yaml is damaged"), claim(configure(), IMAGES):
        pytest.fail("claimed")


@given(st.dictionaries(st.from_regex(r"[a-z_]{1,8}", fullmatch=True), VALUES | st.lists(VALUES)))
def test_a_configuration_is_read_as_omegaconf_reads_it(tmp_path_factory: Any, config: dict[str, Any]) -> None:
    path = tmp_path_factory.mktemp("run", numbered=True) / "config.yaml"
    try:
        path.write_text(OmegaConf.to_yaml(OmegaConf.create({"group": config})))
        wanted = OmegaConf.to_container(OmegaConf.load(path))
    except (ConfigTypeError, GrammarParseError, yaml.YAMLError):
        reject()  # not a value that a configuration can hold
    assert RunDirectory(path.parent).config() == wanted
