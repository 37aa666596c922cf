"""A packed set of runs holds exactly what its run directories held, to the last bit."""

import gzip
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from omegaconf import OmegaConf

from pcr_exp.analysis.runs import read_runs, unfinished_runs
from pcr_exp.errors import RunError
from pcr_exp.runs.manifest import read_manifest
from pcr_exp.runs.packed import ROWS_FILE, RUNS_FILE, main, pack_runs, read_packed, rows_from_csv, rows_to_csv
from pcr_exp.runs.rows import read_rows
from pcr_exp.system.columns import Column
from pcr_exp.training.columns import COLUMNS


def values_of(column: Column) -> st.SearchStrategy[Any]:
    real = st.floats(allow_nan=False, allow_infinity=False) | st.integers()
    values = {
        "count": st.integers(),
        "number": real,
        "share": st.floats(0, 1),
        "word": st.sampled_from(column.words) if column.words else st.just(""),
        "scores": st.dictionaries(st.integers(1, 10).map(str), real),
    }[column.kind]
    return values | st.none() if column.nullable else values


ROWS = st.fixed_dictionaries(
    {"kind": st.sampled_from(["train", "eval", "policy"])},
    optional={column.name: values_of(column) for column in COLUMNS},
)


@given(st.dictionaries(st.text("abc-_.=, \"'\n", min_size=1), st.lists(ROWS, max_size=4), max_size=3))
def test_rows_come_back_with_the_same_values_and_types(rows: dict[str, list[dict[str, Any]]]) -> None:
    back = rows_from_csv(rows_to_csv(rows), dict.fromkeys(rows, COLUMNS))
    assert back == rows
    # 1 == 1.0 == True and 0.0 == -0.0, but they are not written alike.
    assert [[sorted(map(repr, row.items())) for row in back[run]] for run in rows] == [
        [sorted(map(repr, row.items())) for row in rows[run]] for run in rows
    ]


def test_metrics_of_a_task_come_back() -> None:
    rows = {"a": [{"kind": "eval", "val_auc": 0.5, "val_recall": {"nv": 1.0, "mel": None}}]}
    assert rows_from_csv(rows_to_csv(rows), {"a": COLUMNS}) == rows


def test_a_number_that_is_not_finite_is_not_packed() -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        rows_to_csv({"a": [{"kind": "train", "train_loss": float("nan")}]})


def text_of(path: Path) -> str:
    return gzip.decompress(path.read_bytes()).decode()


def write_text(path: Path, text: str) -> None:
    path.write_bytes(gzip.compress(text.encode()))


@pytest.fixture
def runs_root(tmp_path: Path) -> Path:
    """Two finished runs and an interrupted one, unpacked from committed results."""
    source = Path(__file__).parents[2] / "results" / "throughput_model" / "trainings" / "runs"
    entries = json.loads(text_of(source / RUNS_FILE))
    ids = sorted(entries)[:3]
    rows = rows_from_csv(text_of(source / ROWS_FILE), dict.fromkeys(entries, COLUMNS))
    for run_id in ids:
        folder = tmp_path / "runs" / run_id
        folder.mkdir(parents=True)
        manifest = entries[run_id]["manifest"]
        if run_id == ids[2]:
            manifest["status"] = "interrupted"
        (folder / "manifest.json").write_text(json.dumps(manifest))
        (folder / "config.yaml").write_text(OmegaConf.to_yaml(OmegaConf.create(entries[run_id]["config"])))
        (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows[run_id]))
    return tmp_path / "runs"


def test_finished_runs_are_packed_and_nothing_is_changed(runs_root: Path, tmp_path: Path) -> None:
    before = {path: path.read_bytes() for path in runs_root.rglob("*.*")}
    packed = pack_runs(runs_root, tmp_path / "packed")
    assert {path: path.read_bytes() for path in runs_root.rglob("*.*")} == before
    assert sorted(path.name for path in (tmp_path / "packed").iterdir()) == [ROWS_FILE, RUNS_FILE]
    folders = sorted(path.name for path in runs_root.iterdir())
    assert packed == folders[:2]
    for run in read_packed(tmp_path / "packed"):
        folder = runs_root / run.manifest.run_id
        assert run.manifest == read_manifest(folder / "manifest.json")
        assert run.rows == read_rows(folder / "rows.jsonl")
        assert run.config == OmegaConf.to_container(OmegaConf.load(folder / "config.yaml"))
    assert read_runs(tmp_path / "packed") == read_runs(runs_root)
    assert unfinished_runs(tmp_path / "packed").empty


def test_a_set_and_folders_beside_it_are_read_together_but_no_run_twice(
    runs_root: Path, tmp_path: Path
) -> None:
    one, two, _ = sorted(runs_root.iterdir())
    all_runs = read_runs(runs_root)
    two.rename(tmp_path / two.name)
    pack_runs(runs_root, runs_root)
    with pytest.raises(RunError, match=f"has {one.name} twice, in runs.json.gz and as a folder"):
        read_runs(runs_root)
    one.rename(tmp_path / one.name)
    (tmp_path / two.name).rename(two)
    assert read_runs(runs_root) == all_runs


def test_a_set_is_packed_by_a_command(
    runs_root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pack_runs(runs_root, tmp_path / "called")
    main([str(runs_root), str(tmp_path / "typed")])
    assert capsys.readouterr().out.startswith("2 runs in ")
    for name in (ROWS_FILE, RUNS_FILE):
        assert (tmp_path / "typed" / name).read_bytes() == (tmp_path / "called" / name).read_bytes()


def test_folders_of_a_machine_are_named_otherwise(
    runs_root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = read_runs(runs_root)[0].config["runs_root"]
    pack_runs(runs_root, tmp_path / "as they are")
    renames = ["--rename", f"{root}=outputs/runs", "--rename", "shufflenet=net"]
    main([str(runs_root), str(tmp_path / "out"), *renames])
    packed = read_packed(tmp_path / "out")
    assert {run.config["runs_root"] for run in packed} == {"outputs/runs"}
    assert {run.config["model"]["name"] for run in packed} == {"net_v2_x0_5"}
    as_they_are = read_packed(tmp_path / "as they are")
    assert [run.rows for run in packed] == [run.rows for run in as_they_are]
    assert [run.manifest.run_id for run in packed] == [run.manifest.run_id for run in as_they_are]
    for wrong in ("outputs", "=outputs"):
        with pytest.raises(SystemExit):
            main([str(runs_root), str(tmp_path / "out"), "--rename", wrong])
        assert f"--rename {wrong}: wanted OLD=NEW" in capsys.readouterr().err


def test_runs_are_added_to_a_set(runs_root: Path, tmp_path: Path) -> None:
    pack_runs(runs_root, tmp_path / "at once")
    first, second, unfinished = sorted(runs_root.iterdir())
    out = tmp_path / "one by one"
    for number, added in enumerate((second, first)):  # later id first; sets are sorted by id
        part = tmp_path / f"part_{number}"
        part.mkdir()
        added.rename(part / added.name)
        main([str(part), str(out), "--add"])
    for name in (ROWS_FILE, RUNS_FILE):
        assert (out / name).read_bytes() == (tmp_path / "at once" / name).read_bytes()
    pack_runs(tmp_path / "at once", out, add=True)  # existing runs stay as they are
    assert (out / ROWS_FILE).read_bytes() == (tmp_path / "at once" / ROWS_FILE).read_bytes()
    pack_runs(tmp_path / "part_1", out)
    assert [run.manifest.run_id for run in read_packed(out)] == [first.name], "without add, it is replaced"
    pack_runs(tmp_path / "at once", out)
    assert (out / RUNS_FILE).read_bytes() == (tmp_path / "at once" / RUNS_FILE).read_bytes()
    assert unfinished.exists()


def test_a_set_of_0_2_0_is_read_and_added_to(runs_root: Path, tmp_path: Path) -> None:
    """Its manifests were not compressed."""
    first, *_ = sorted(runs_root.iterdir())
    pack_runs(runs_root, tmp_path / "at once")
    (tmp_path / "part").mkdir()
    shutil.copytree(first, tmp_path / "part" / first.name)
    out = tmp_path / "old"
    pack_runs(tmp_path / "part", out)
    (out / "runs.json").write_text(text_of(out / RUNS_FILE))
    (out / RUNS_FILE).unlink()
    assert read_runs(out) == read_runs(tmp_path / "part")
    pack_runs(tmp_path / "at once", out, add=True)
    assert read_runs(out) == read_runs(tmp_path / "at once")
    assert sorted(path.name for path in out.iterdir()) == [ROWS_FILE, RUNS_FILE]


def test_no_run_takes_the_place_of_another_of_its_id(runs_root: Path, tmp_path: Path) -> None:
    pack_runs(runs_root, tmp_path / "packed")
    before = {path: path.read_bytes() for path in (tmp_path / "packed").iterdir()}
    first = min(runs_root.iterdir())
    rows = (first / "rows.jsonl").read_text().splitlines(keepends=True)
    (first / "rows.jsonl").write_text("".join(rows[:-1]))
    with pytest.raises(
        RunError, match=f"already contains a different {first.name}, so this one is not added"
    ):
        pack_runs(runs_root, tmp_path / "packed", add=True)
    assert {path: path.read_bytes() for path in before} == before


def test_nothing_is_added_to_a_damaged_set(runs_root: Path, tmp_path: Path) -> None:
    pack_runs(runs_root, tmp_path / "packed")
    rows_path = tmp_path / "packed" / ROWS_FILE
    write_text(rows_path, "run_id\nfotos\n")
    with pytest.raises(RunError, match=r"rows.csv.gz, line 2: run fotos is not in runs.json.gz"):
        pack_runs(runs_root, tmp_path / "packed", add=True)
    assert text_of(rows_path) == "run_id\nfotos\n"


def test_nothing_to_pack(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="holds no finished run"):
        pack_runs(tmp_path, tmp_path / "packed")


@pytest.mark.parametrize(
    ("file", "old", "new", "wanted"),
    [
        (RUNS_FILE, "{", "", "is not a packed set of runs: JSONDecodeError"),
        (RUNS_FILE, '"manifest"', '"manifold"', "is not a packed set of runs: KeyError"),
        (RUNS_FILE, '"finished"', '"done"', "runs.json.gz, .*: status='done'"),
        (ROWS_FILE, "eval,1", "eval,one", "rows.csv.gz, line [0-9]+ is damaged"),
        (ROWS_FILE, "eval,1,", "eval,", "rows.csv.gz, line [0-9]+ is damaged"),
        (ROWS_FILE, "\nphotos", "\n\nphotos", "rows.csv.gz, line 2 is damaged"),
        (ROWS_FILE, "eval,1", "eval,-1", "rows.csv.gz, .*, row [0-9]+: eval row: epoch=-1"),
        (ROWS_FILE, "\nphotos", "\nfotos", "rows.csv.gz, line 2: run fotos.* is not in runs.json.gz"),
    ],
)
def test_a_damaged_set(runs_root: Path, file: str, old: str, new: str, wanted: str) -> None:
    pack_runs(runs_root, runs_root)
    text = text_of(runs_root / file)
    assert old in text
    write_text(runs_root / file, text.replace(old, new, 1))
    with pytest.raises(RunError, match=wanted):
        read_packed(runs_root)


@pytest.mark.parametrize(
    ("damage", "wanted"),
    [
        (lambda rows: rows[: len(rows) // 2], "EOFError"),
        (lambda rows: b"run_id" + rows, "BadGzipFile"),
        (lambda rows: rows[:20] + b"?" * 20 + rows[40:], "error: Error -3 while decompressing"),
    ],
)
def test_damaged_compressed_rows(runs_root: Path, damage: Callable[[bytes], bytes], wanted: str) -> None:
    pack_runs(runs_root, runs_root)
    rows_path = runs_root / ROWS_FILE
    rows_path.write_bytes(damage(rows_path.read_bytes()))
    with pytest.raises(RunError, match=f"is not a packed set of runs: {wanted}.*fetch both again"):
        read_packed(runs_root)
