"""Where this package lies, and how its commands are typed there.

In a checkout, `configs/` and `results/` lie beside it, and people type `python -m experiments.train`. When it
is installed, `configs` is inside it, there are no `results`, and people type `pcr-exp train`.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

_PACKAGE = Path(__file__).parent
COMMAND = "pcr-exp"
INSTALLED = (
    *("prepare", "tolerance", "train", "sweep", "evaluate", "explore", "quality", "throughput", "figures"),
    "demo",
)
"""Commands of a checkout that `pcr-exp` has too; the others reproduce papers, and are of a checkout alone."""
_TYPED = re.compile(rf"(python )?-m experiments\.({'|'.join(INSTALLED)})\b")
CHECKOUT: Path | None = None if (_PACKAGE / "configs").is_dir() else _PACKAGE.parent
"""The folder of the repository; None: the package is installed without it."""
CONFIGS = (CHECKOUT or _PACKAGE) / "configs"
"""The folder of YAML files that Hydra composes."""


def as_typed(text: str) -> str:
    """The text, whose commands are those of a checkout, with commands as they are typed here."""
    if CHECKOUT is not None and not _started_as_command():
        return text
    return _TYPED.sub(lambda found: f"{COMMAND if found[1] else '-m pcr_exp'} {found[2]}", text)


def _started_as_command() -> bool:
    program = next((word for word in sys.orig_argv[1:] if not word.startswith("-")), "")
    return program == "pcr_exp" or Path(program).stem == COMMAND
