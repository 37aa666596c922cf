"""The programs of the guides run as they stand, one after the other, in a folder of their own."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

REPO = Path(__file__).parents[1]
GUIDES = [REPO / "docs" / "guides" / f"{name}.md" for name in ("tables", "tasks", "photographs")]
BLOCK = re.compile(r"<!-- run -->\n```(python|bash)\n(.*?)```", re.DOTALL)


@pytest.mark.parametrize("guide", GUIDES, ids=lambda guide: guide.stem)
def test_programs_run(guide: Path, tmp_path: Path) -> None:
    blocks = BLOCK.findall(guide.read_text())
    assert blocks and len(blocks) == guide.read_text().count("<!-- run -->")
    paths = [str(REPO), os.environ.get("PYTHONPATH", "")]
    for language, program in blocks:
        shell = f'set -e\npcr-exp() {{ "{sys.executable}" -m pcr_exp "$@"; }}\n{program}'
        command = [sys.executable, "-c", program] if language == "python" else ["bash", "-c", shell]
        done = subprocess.run(
            command,
            cwd=tmp_path,
            env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, paths))},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, f"{program}\n{done.stdout}\n{done.stderr}"
