"""Counts in sentences."""

from pcr_exp.cli.prepare import describe
from pcr_exp.records.encode import EncodeReport
from pcr_exp.system.words import counted


def test_one_is_one() -> None:
    assert (counted(0, "image"), counted(1, "image"), counted(1234, "image")) == (
        "0 images",
        "1 image",
        "1,234 images",
    )
    assert (counted(1, "record", "are"), counted(2, "record", "are")) == ("1 record is", "2 records are")
    assert counted(1, "class", "have") == "1 class has"


def test_what_was_encoded_is_counted() -> None:
    report = EncodeReport(1, 0, 1, {"pcr": 2**20}, num_turned=None, num_reused=0, encode_s=1.0)
    assert describe(report).startswith("1 image in 1 record, pcr 1.0 MiB")
