"""Where this package is installed, and how its commands are typed there.

In a checkout, `configs/` and `results/` are next to the package, and users type
`python -m experiments.train`. In an installation, `configs` is inside the package, there is no `results`, and
users type `pcr-exp train`.
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
"""Checkout commands that `pcr-exp` also has. The others reproduce papers and exist only in a checkout."""
_TYPED = re.compile(rf"(python )?-m experiments\.({'|'.join(INSTALLED)})\b")
CHECKOUT: Path | None = None if (_PACKAGE / "configs").is_dir() else _PACKAGE.parent
"""Root of the repository; None if the package is installed without it."""
CONFIGS = (CHECKOUT or _PACKAGE) / "configs"
"""Folder of the YAML files that Hydra composes."""


def as_typed(text: str) -> str:
    """Return a text with its checkout commands replaced by the commands to type here."""
    if CHECKOUT is not None and not _started_as_command():
        return text
    return _TYPED.sub(lambda found: f"{COMMAND if found[1] else '-m pcr_exp'} {found[2]}", text)


def _started_as_command() -> bool:
    program = next((word for word in sys.orig_argv[1:] if not word.startswith("-")), "")
    return program == "pcr_exp" or Path(program).stem == COMMAND
