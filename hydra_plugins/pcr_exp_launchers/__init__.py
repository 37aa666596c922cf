"""Launchers of sweeps where Hydra looks for them: `hydra/launcher=slurm` and `hydra/launcher=ray`.

They are `pcr_exp.cli.launchers`; every command imports this module, which imports no more than Hydra.
"""

# No annotations as text: Hydra runs this file before it is a module that a dataclass could look them up in.

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from hydra.core.config_store import ConfigStore
from hydra.core.utils import JobReturn
from hydra.plugins.launcher import Launcher
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig


@dataclass
class SlurmSettings:
    """What each job asks of SLURM, through `submitit`."""

    _target_: str = "hydra_plugins.pcr_exp_launchers.SlurmLauncher"
    cluster: str = "slurm"
    """`slurm`, or `local`: processes of this machine, all at once, that outlive the command."""
    timeout_min: int = 24 * 60
    """A job that reaches it saves a checkpoint, is queued again and continues."""
    cpus_per_task: int = 4
    gpus_per_node: int = 0
    mem_gb: int | None = None
    partition: str | None = None
    max_parallel: int = 256
    """Jobs of the sweep that run at once, at most."""
    additional: dict[str, Any] = field(default_factory=dict)
    """More parameters of sbatch, by name."""
    program: list[str] | None = None
    """What starts a job's module (null: this Python), such as [torchrun, --nproc-per-node, 4]."""


@dataclass
class RaySettings:
    """Where a Ray cluster is, and what each job asks of it."""

    _target_: str = "hydra_plugins.pcr_exp_launchers.RayLauncher"
    address: str | None = "auto"
    """Of a cluster; `auto`: the one that RAY_ADDRESS or this machine knows; null: one is started here."""
    num_cpus: float = 2
    num_gpus: float = 0
    max_retries: int = 3
    """How often a job whose node died is started again elsewhere: it continues from its checkpoint."""
    program: list[str] | None = None
    """As of SLURM."""


class _PcrExpLauncher(Launcher):
    def __init__(self, **settings: Any) -> None:
        self.settings = settings
        self.config: DictConfig | None = None

    def setup(
        self,
        *,
        hydra_context: HydraContext,  # noqa: ARG002
        task_function: TaskFunction,  # noqa: ARG002
        config: DictConfig,
    ) -> None:
        """Keep the configuration: each job is a command of its own, which composes its own."""
        self.config = config


class SlurmLauncher(_PcrExpLauncher):
    """Hands jobs over and returns; `python -m experiments.sweep` tells what becomes of them."""

    def launch(self, job_overrides: Sequence[Sequence[str]], initial_job_idx: int) -> Sequence[JobReturn]:  # noqa: ARG002
        """Submit every job that is not done or under way."""
        from pcr_exp.cli.launchers import hand_to_slurm

        hand_to_slurm(self.config, job_overrides, self.settings)
        return []


class RayLauncher(_PcrExpLauncher):
    """Runs jobs as tasks of a Ray cluster, and waits for them."""

    def launch(self, job_overrides: Sequence[Sequence[str]], initial_job_idx: int) -> Sequence[JobReturn]:
        """Run all of them."""
        from pcr_exp.cli.launchers import run_on_ray

        run_on_ray(self.config, job_overrides, initial_job_idx, self.settings)
        return []


for _name, _settings in {"slurm": SlurmSettings, "ray": RaySettings}.items():
    ConfigStore.instance().store(group="hydra/launcher", name=_name, node=_settings, provider="pcr_exp")
