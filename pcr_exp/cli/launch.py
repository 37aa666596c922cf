"""Run a command's task with Hydra, print errors in plain words, and print a table at the end of a sweep."""

from __future__ import annotations

import atexit
import os
import re
import shutil
import signal
import sys
import tempfile
import threading
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import hydra
from hydra._internal.utils import get_args_parser
from hydra.core.hydra_config import HydraConfig
from hydra.errors import HydraException
from hydra.types import RunMode
from omegaconf import DictConfig

from pcr_exp.cli import help as helping
from pcr_exp.cli.answers import answer_of
from pcr_exp.cli.jobs import (
    FAILED,
    INTERRUPTED,
    NOT_BEGUN,
    Outcome,
    SweepFolder,
    escape,
    handed_over_as,
    is_stopped,
    print_outcomes,
    read_ended,
    running_job,
    sweep_folder,
    write_outcome,
)
from pcr_exp.cli.terminal import open_console
from pcr_exp.cli.typed import SMOKE, acting, check_overrides, require_used, smoke_overrides, unknown_keys
from pcr_exp.config.components import option_names
from pcr_exp.config.compose import load, named_packages, prepare_hydra
from pcr_exp.errors import ConfigError, PcrExpError
from pcr_exp.places import CONFIGS
from pcr_exp.redaction import redacted_text
from pcr_exp.system.process import end_with_parent, leaving_readers, terminate

if TYPE_CHECKING:
    from pcr_exp.cli.dry_run import Planned

FLAGS = {"--dry-run": "dry_run=true", "--check": "check=times", "--check=content": "check=content"}
"""Options of the command line, and the Hydra overrides that they stand for."""
_DRY_RUN = re.compile(r"\+{0,2}dry_run=(true|1|yes|on)", re.IGNORECASE)
_OF_SWEEPS = re.compile(r"\+{0,2}hydra(/launcher=|\.launcher\.|\.sweep\.dir=).*", re.DOTALL)
"""Settings of where a sweep runs and leaves its list of jobs."""
T = TypeVar("T")


def launch(task: Callable[[T], str], config_name: str, schema: type[T], plan: Callable[[T], Planned]) -> None:
    """Run `task` on the configuration that the command line composes, once or for every job of a sweep.

    `task` returns one word for the sweep's table, such as "finished" or "skipped"; `plan` answers
    `--dry-run`. Neither is called for `--help`. A failed job stops a sweep only with `runner=fail_fast` or
    with several processes: the others are still in the job that failed here, and would wait for this process
    forever. Exits with status 1 if any job failed, and with 130 or 143 if interrupted.
    """
    with leaving_readers():
        if helping.is_asked(sys.argv[1:]):
            sys.exit(print_help(config_name, schema, sys.argv[1:]))
        _launch(HydraTask(task, schema, plan), config_name)


def _launch(job: HydraTask[Any], config_name: str) -> None:
    main = hydra.main(version_base="1.3", config_path=str(CONFIGS), config_name=config_name)(job)
    SweepFolder.begun, SweepFolder.handed_over, status = None, False, 0
    with unwinding_signals(job.signalled):
        try:
            typed = check_arguments()
            prepare_hydra(named_packages(typed), {config_name: job.schema})
            add_overrides(smoke_overrides(config_name, typed))
            if any(_DRY_RUN.fullmatch(override) for override in typed):
                leave_sweeps_alone()
            main()
        except ConfigError as error:  # the command line is wrong
            tell(error)
            status = 1
        except KeyboardInterrupt:
            status = 130
        except SystemExit as end:  # of Hydra, after its message, or of a terminated job
            status = end.code if isinstance(end.code, int) else int(end.code is not None)
            if status == 1 and not job.has_begun:
                tell_unknown_keys(config_name, job.schema)
        except Exception:
            if job.signalled.number is None:
                raise
            status = 1  # a library turned the interrupt into an error of its own
    if job.signalled.number is not None and status == 1:
        status = 128 + job.signalled.number
    if status == 130:
        print("interrupted; run the same command again to continue", file=sys.stderr)
    SweepFolder.alive.close()
    if SweepFolder.begun is not None and not SweepFolder.handed_over:
        status = print_sweep_state(SweepFolder.begun, status)
    elif job.outcome is not None and job.outcome.failed:
        status = 1
    end_undisturbed()
    sys.exit(status)


def tell_unknown_keys(runner: str, schema: type) -> None:
    """After Hydra's own message, print which of the typed settings do not exist, and what was meant."""
    typed = [argument for argument in sys.argv[1:] if "=" in argument and not argument.startswith("-")]
    try:
        known = helping.known_keys(
            runner, schema, [text for text in typed if option_names(text.partition("=")[0])]
        )
    except (ConfigError, HydraException):  # it is the option that does not exist, as Hydra's message says
        return
    for advice in unknown_keys(typed, known):
        tell(advice)


def print_help(runner: str, schema: type, arguments: Sequence[str]) -> int:
    """Print the help page of a runner. Return the exit status."""
    try:
        print(helping.help_page(runner, schema, arguments))
    except (ConfigError, HydraException) as error:
        tell(error)
        return 1
    return 0


class Signalled:
    """Records a SIGINT or SIGTERM, because libraries may turn its exception into one of their own."""

    number: int | None = None

    def raise_if_so(self) -> None:
        """Raise the signal's exception, if one came: KeyboardInterrupt, or SystemExit for SIGTERM."""
        if self.number == signal.SIGINT:
            raise KeyboardInterrupt
        if self.number is not None:
            raise SystemExit(128 + self.number)


class HydraTask(Generic[T]):
    """Task as Hydra calls it, here or in a launcher's process. Picklable if its arguments are."""

    def __init__(self, task: Callable[[T], str], schema: type[T], plan: Callable[[T], Planned]) -> None:
        self.task = task
        self.schema = schema
        self.plan = plan
        self.launched_by = os.getpid()
        self.signalled = Signalled()
        self.has_begun = False
        """Whether this process has composed a job's configuration."""
        self.outcome: Outcome | None = None
        """Outcome of a single job, which runs in the process that was started; None in a sweep."""

    def __call__(self, config: DictConfig) -> None:
        """Run the task. Errors become outcomes; a job of a sweep writes its outcome to a file."""
        self.has_begun = True
        if os.getpid() != self.launched_by:
            prepare_hydra(config.get("components", []))
            if os.getppid() == self.launched_by:
                end_with_parent(self.launched_by, terminate)
        state = HydraConfig.get()
        if state.mode == RunMode.MULTIRUN:
            self._run_in_sweep(config, sweep_folder(state), state.job.num)
        elif (place := handed_over_as()) is not None:
            self.outcome = self._run_in_sweep(config, *place)
        else:
            self.outcome = self._run(config, state.job.name)

    def _run_in_sweep(self, config: DictConfig, folder: Path, number: int) -> Outcome:
        overrides = HydraConfig.get().overrides.task
        name = " ".join(o for o in overrides if not o.startswith(("experiment=", "runner=")))
        if is_stopped(folder):
            outcome = Outcome(name, NOT_BEGUN, "another job had failed")
            write_outcome(folder, number, outcome)
            return outcome
        try:
            with running_job(folder, number, name) as job:
                try:
                    outcome = self._run(config, name)
                except BaseException:
                    job.end(Outcome(name, INTERRUPTED))
                    raise
                job.end(outcome)
        except PcrExpError as error:  # another process runs it and reports its outcome
            tell(error)
            outcome = Outcome(name, FAILED, str(error))
        if outcome.failed and int(os.environ.get("WORLD_SIZE", "1")) > 1:
            raise SystemExit(1)  # torchrun then ends the others
        return outcome

    def _run(self, config: DictConfig, name: str) -> Outcome:
        try:
            loaded = load(config, self.schema)
            if SMOKE in (typed := list(HydraConfig.get().overrides.task)):
                loaded = load(acting(config, loaded, typed), self.schema)
            require_used(loaded, typed)
            if getattr(loaded, "dry_run", False):
                return self._planned(name, loaded)
            return Outcome(name, self.task(loaded))
        except PcrExpError as error:
            if os.environ.get("HYDRA_FULL_ERROR") == "1":
                print(redacted_text(traceback.format_exc()), file=sys.stderr)
            tell(error)
            return Outcome(name, FAILED, str(error))
        except Exception as error:
            self.signalled.raise_if_so()
            # Not our own error: a bug report needs the traceback.
            print(redacted_text(traceback.format_exc()), file=sys.stderr)
            return Outcome(name, FAILED, redacted_text(f"{type(error).__name__}: {error}"))

    def _planned(self, name: str, config: T) -> Outcome:
        planned = self.plan(config)
        print(planned.words)
        return Outcome(name, planned.status, planned.words, planned.amounts)


def check_arguments() -> list[str]:
    """Check the command line and return its overrides. Raises ConfigError.

    Hydra understands only key=value, so FLAGS are replaced by overrides here.
    """
    flags = [FLAGS[argument] for argument in sys.argv[1:] if argument in FLAGS]
    sys.argv[1:] = [argument for argument in sys.argv[1:] if argument not in FLAGS]
    add_overrides(flags)
    arguments = get_args_parser().parse_args()
    sweeps = arguments.multirun or any(o.startswith("hydra.mode=") for o in arguments.overrides)
    check_overrides(arguments.overrides, sweeps=sweeps)
    overrides: list[str] = arguments.overrides
    return overrides


def add_overrides(overrides: Sequence[str]) -> None:
    """Insert overrides next to those typed: Hydra reads none that follows both an override and an option."""
    given = enumerate(sys.argv[1:], start=1)
    places = [i for i, argument in given if "=" in argument and not argument.startswith("-")]
    place = places[0] if places else len(sys.argv)
    sys.argv[place:place] = overrides


def leave_sweeps_alone() -> None:
    """Run the jobs of a sweep here, and list them in a folder that is removed when this process ends.

    A dry run would otherwise replace the list of the sweep that it is about, or be handed to a cluster.
    """
    folder = tempfile.mkdtemp(prefix="pcr-exp-dry-run-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    sys.argv[1:] = [argument for argument in sys.argv[1:] if not _OF_SWEEPS.fullmatch(argument)]
    add_overrides([f"hydra.sweep.dir={folder}", "hydra/launcher=basic"])


def end_undisturbed() -> None:
    """Ignore the first Ctrl-C from now on, so that it does not cut short the clean-up at exit."""
    if threading.current_thread() is not threading.main_thread():
        return

    def first(*_: object) -> None:
        signal.signal(signal.SIGINT, signal.SIG_DFL)

    if signal.getsignal(signal.SIGINT) != signal.SIG_IGN:
        signal.signal(signal.SIGINT, first)


def print_sweep_state(folder: Path, status: int) -> int:
    """Print the table of a sweep that has ended. Return the exit status, given the status so far."""
    outcomes = read_ended(folder, interrupted=status in (130, 143))
    failed = status != 0 or any(outcome.failed for outcome in outcomes)
    is_first = os.environ.get("RANK", "0") == "0"  # the others' tables are the same, unless something failed
    if (outcomes and failed) or (is_first and len(outcomes) > 1):
        print_outcomes(outcomes, [answer_of(outcome.run) for outcome in outcomes])
    if not outcomes and status == 0:
        tell(
            f"no job of this sweep has reported an outcome in {folder}. Give a hydra.sweep.dir that every "
            "machine of the launcher can access."
        )
        return 1
    return status or int(failed)


def tell(error: object) -> None:
    """Print an error to stderr."""
    open_console(sys.stderr).print(f"[bold red]error:[/] {escape(error)}", soft_wrap=True)


@contextmanager
def unwinding_signals(signalled: Signalled) -> Iterator[None]:
    """Within, SIGTERM unwinds the program as Ctrl-C does, so that no files are left behind.

    SIGTERM is left alone under torchrun, which ends all processes of a run with it: a process that waits for
    another one inside a library could not unwind. An ignored signal stays ignored.
    """
    pid = os.getpid()
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def unwind(number: int, _frame: FrameType | None) -> None:
        if os.getpid() != pid:
            os._exit(128 + number)  # a forked child has nothing to clean up
        signalled.number = number
        signalled.raise_if_so()

    alone = int(os.environ.get("WORLD_SIZE", "1")) == 1
    wanted = [signal.SIGINT, *([signal.SIGTERM] if alone else [])]
    handled = [number for number in wanted if signal.getsignal(number) != signal.SIG_IGN]
    before: dict[int, Any] = {number: signal.signal(number, unwind) for number in handled}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
