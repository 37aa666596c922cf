"""How few bytes can training read and still reach its accuracy, and how much sooner?

This module exports the public API. Each name is loaded from its module on first access, so that `import
pcr_exp` costs nothing.
"""

from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pcr_exp.analysis.runs import read_runs
    from pcr_exp.api.mixture import mix
    from pcr_exp.api.open import open
    from pcr_exp.errors import PcrExpError
    from pcr_exp.loading.batch import Batch
    from pcr_exp.loading.loader import RecordLoader
    from pcr_exp.loading.transform import EvalTransform, TrainTransform
    from pcr_exp.measuring.stalls import measure
    from pcr_exp.policies.policy import ScanPolicy, StaticScan
    from pcr_exp.records.prepare import prepare_records
    from pcr_exp.records.reader import RecordSet
    from pcr_exp.runs.train_run import run_training
    from pcr_exp.storage.open import open_storage

_MODULES = {
    "Batch": "pcr_exp.loading.batch",
    "EvalTransform": "pcr_exp.loading.transform",
    "PcrExpError": "pcr_exp.errors",
    "RecordLoader": "pcr_exp.loading.loader",
    "RecordSet": "pcr_exp.records.reader",
    "ScanPolicy": "pcr_exp.policies.policy",
    "StaticScan": "pcr_exp.policies.policy",
    "TrainTransform": "pcr_exp.loading.transform",
    "measure": "pcr_exp.measuring.stalls",
    "mix": "pcr_exp.api.mixture",
    "open": "pcr_exp.api.open",
    "open_storage": "pcr_exp.storage.open",
    "prepare_records": "pcr_exp.records.prepare",
    "read_runs": "pcr_exp.analysis.runs",
    "run_training": "pcr_exp.runs.train_run",
}
__all__ = [
    "Batch",
    "EvalTransform",
    "PcrExpError",
    "RecordLoader",
    "RecordSet",
    "ScanPolicy",
    "StaticScan",
    "TrainTransform",
    "__version__",
    "measure",
    "mix",
    "open",
    "open_storage",
    "prepare_records",
    "read_runs",
    "run_training",
]

try:
    __version__ = version("pcr-exp")
except PackageNotFoundError:  # a checkout that is not installed
    __version__ = "0+unknown"


def __getattr__(name: str) -> Any:
    """Import a public name from its module on first access."""
    if name not in _MODULES:
        raise AttributeError(f"module 'pcr_exp' has no attribute {name!r}; it has {', '.join(__all__)}")
    return getattr(import_module(_MODULES[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
