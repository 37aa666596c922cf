"""Import everything once, then fork a runner for each line of JSON on stdin.

Starting Python and importing torch takes seconds, and to kill a runner in that time would test nothing. A
forked runner otherwise behaves as if a shell had started it: it has its own session, the default SIGINT
handler, and its output in a file.
"""

from __future__ import annotations

import faulthandler
import gc
import json
import os
import runpy
import signal
import sys

import skimage.data  # noqa: F401
import torch._dynamo  # noqa: F401  # which the first optimizer of a process imports
from hydra.core.config_store import ConfigStore

import pcr_exp.analysis.one_run
import pcr_exp.records.prepare
import pcr_exp.runs.train_run  # noqa: F401
from pcr_exp.config.compose import prepare_hydra


def become(request: dict[str, object]) -> None:
    """In the child: run `python -m <module> <arguments>`."""
    os.setsid()
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    for descriptor, key in ((1, "output"), (2, "errors")):
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
        os.dup2(os.open(str(request[key]), flags, 0o666), descriptor)
    faulthandler.register(signal.SIGUSR1, file=2)  # prints the stacks of a runner that hangs
    os.chdir(str(request["cwd"]))
    sys.argv = list(request["arguments"])  # type: ignore[call-overload]
    os.environ |= request["environment"]  # type: ignore[operator]
    runpy.run_module(str(request["module"]), run_name="__main__", alter_sys=True)


def main() -> None:
    """Answer {"do": "start", ...} with a pid, {"do": "end", "pid": ...} with the status when it has ended."""
    prepare_hydra()
    ConfigStore.__deepcopy__ = lambda self, _memo: self  # type: ignore[attr-defined]  # as in conftest
    gc.freeze()  # else children copy all its pages at their first collection and at exit
    for line in sys.stdin:
        request = json.loads(line)
        if request["do"] == "start":
            pid = os.fork()
            if pid == 0:
                return become(request)
            answer = pid
        else:
            _, status = os.waitpid(request["pid"], 0)
            answer = os.waitstatus_to_exitcode(status)
        print(json.dumps(answer), flush=True)
    return None


if __name__ == "__main__":
    main()
