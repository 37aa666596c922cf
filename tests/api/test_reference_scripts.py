"""timm's train.py and torchvision's classification script train with only their dataset calls replaced.

No package contains these scripts: PCR_EXP_REFERENCE_SCRIPTS names a folder with `timm/train.py` and
`torchvision/` (train.py and the modules it imports). results/reference_scripts lists versions and results.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.program

SCRIPTS = os.environ.get("PCR_EXP_REFERENCE_SCRIPTS")
REPO = Path(__file__).parents[2]
DATASET_LINES = {
    "torchvision": (
        r"torchvision\.datasets\.ImageFolder\(\s*(\w+),\s*",
        r'pcr_exp.open(\1, scan="group_2", label="number", transform=',
    ),
    "timm": (
        r"create_dataset\([^()]*split=args\.(\w+)[^()]*\)",
        r'pcr_exp.open(f"{args.data_dir}/{args.\1}", scan="group_2", label="number")',
    ),
}
"""Pattern of the two calls that open a dataset in each script, and their replacement."""
ARGUMENTS = {
    "torchvision": "--device cpu --data-path {data} --output-dir {out} --model shufflenet_v2_x0_5 -b 20 -j 1 "
    "--epochs 2 --lr 0.01 --print-freq 1",
    "timm": "-c {script}/cpu.yaml --data-dir {data} --output {out} --val-split val --model test_resnet "
    "--input-size 3 64 64 --num-classes 100 -b 20 -j 1 --epochs 2 --warmup-epochs 0 --log-interval 1",
}
SAYS = {
    "torchvision": r"Epoch: \[1\] +\[4/5\].*loss: \d(.|\n)*Acc@1 \d",
    "timm": r"Train: 1 \[ +4/5(.|\n)*Acc@1: +\d",
}


@pytest.mark.skipif(SCRIPTS is None, reason="PCR_EXP_REFERENCE_SCRIPTS names no folder of copies")
@pytest.mark.parametrize("name", ["torchvision", "timm"])
def test_a_script_trains_and_validates(name: str, split: Path, tmp_path: Path) -> None:
    if name == "timm":
        pytest.importorskip("timm", reason="pip install -e '.[frameworks]'")
    data, out, script = tmp_path / "data", tmp_path / "out", tmp_path / "script"
    for part in ("train", "val"):
        shutil.copytree(split, data / part)
    shutil.copytree(Path(str(SCRIPTS), name), script)
    given, ours = DATASET_LINES[name]
    text, num_replaced = re.subn(given, ours, (script / "train.py").read_text())
    assert num_replaced == 2, "the script opens a training set and a validation set"
    (script / "train.py").write_text(text.replace("\nimport torch\n", "\nimport pcr_exp\nimport torch\n", 1))
    (script / "cpu.yaml").write_text("device: cpu\n")  # for timm scripts that predate --device
    arguments = ARGUMENTS[name].format(data=data, out=out, script=script).split()
    done = subprocess.run(
        [sys.executable, script / "train.py", *arguments],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": os.pathsep.join([str(REPO), *filter(None, sys.path)])},
        capture_output=True,
        text=True,
        timeout=1800,
        check=False,
    )
    said = done.stdout + done.stderr
    print(said)
    assert done.returncode == 0, said
    assert re.search(SAYS[name], said), said
    assert list(out.rglob("*.pth*")), "a checkpoint"
