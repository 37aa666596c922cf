"""Files of one commit of a git repository, bare or not, which is only read."""

from __future__ import annotations

import subprocess
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from pcr_exp.errors import DatasetError


@dataclass(frozen=True, slots=True)
class Repository:
    """Which commit of which public repository."""

    name: str
    """owner/name."""
    commit: str
    """40 hex digits."""


@dataclass(frozen=True, slots=True)
class GitFiles:
    """The files of a commit in a local copy of its repository."""

    folder: Path
    """The git directory, or a checkout."""
    repository: Repository

    def __post_init__(self) -> None:
        """Raise DatasetError unless the commit is there."""
        wanted = self.repository
        done = self._git("cat-file", "-e", f"{wanted.commit}^{{commit}}", check=False)
        if done.returncode:
            said = done.stderr.decode(errors="replace").strip()
            raise DatasetError(
                f"{self.folder} has no commit {wanted.commit} ({said}): wanted a clone of {wanted.name} on "
                f"GitHub that holds it: git clone --bare https://github.com/{wanted.name}"
            )

    def ids(self, below: str = "") -> dict[str, str]:
        """Path -> git's hash of the content, for every file below a folder; equal hashes are equal files."""
        listed = self._git("ls-tree", "-r", "-z", self.repository.commit, "--", *([below] if below else []))
        entries = [entry.partition("\t") for entry in listed.stdout.decode().split("\0") if entry]
        return {path: fields.split()[2] for fields, _, path in entries if fields.split()[1] == "blob"}

    def read(self, path: str) -> bytes:
        """The content of one file. Raises DatasetError if it is not there."""
        ((_, content),) = self.contents({path: f"{self.repository.commit}:{path}"})
        return content

    def contents(self, ids: dict[str, str]) -> Iterator[tuple[str, bytes]]:
        """(path, content) of each of `ids`, in their order. Raises DatasetError if the copy lacks one."""
        command = ["git", "-C", str(self.folder), "cat-file", "--batch"]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
            assert process.stdin is not None and process.stdout is not None
            for path, id_ in ids.items():
                process.stdin.write(f"{id_}\n".encode())
                process.stdin.flush()
                answer = process.stdout.readline().decode().split()
                if len(answer) != 3:
                    raise DatasetError(
                        f"{self.folder} lacks {path} of {self.repository.name} at {self.repository.commit} "
                        f"({' '.join(answer)}): is it a partial copy? Clone it in full."
                    )
                content = process.stdout.read(int(answer[2]))
                process.stdout.read(1)
                yield path, content
            process.stdin.close()

    def _git(self, *arguments: str, check: bool = True) -> subprocess.CompletedProcess[bytes]:
        try:
            return subprocess.run(
                ["git", "-C", str(self.folder), *arguments], capture_output=True, check=check
            )
        except FileNotFoundError as error:
            raise DatasetError("git is not installed, and photographs are read from its objects.") from error
        except subprocess.CalledProcessError as error:
            raise DatasetError(
                f"{self.folder}: git {arguments[0]}: {error.stderr.decode(errors='replace').strip()}"
            ) from error


def first_of_each(ids: Iterable[tuple[str, str]]) -> dict[str, list[str]]:
    """Content hash -> the paths that have it, in order."""
    paths: dict[str, list[str]] = {}
    for path, id_ in ids:
        paths.setdefault(id_, []).append(path)
    return paths
