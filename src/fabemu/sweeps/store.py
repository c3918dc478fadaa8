"""The directory of a sweep: what it is, which runs are done, and their results as one Parquet dataset.

``journal.jsonl`` gets a line as soon as a run is done, before anything else is told of it; what is in there survives
anything. ``results`` and ``costs`` are made from it, part by part, each put in place whole. Parts are cut by the number
of the run alone, so that the same results are the same bytes whoever did the runs, in whatever order.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

from fabemu.errors import InputError, MachineError, OutputError, is_full
from fabemu.sweeps.journal import journal_line, read_journal
from fabemu.sweeps.task import AGAIN, Outcome

FORMAT_VERSION = 1
"""Version of the directory; grows when something in it changes its meaning or goes away."""

SWEEP_FILE, JOURNAL, RESULTS, COSTS, RUNS = "sweep.json", "journal.jsonl", "results", "costs", "runs"
PART_ROWS = 1000
"""Runs in one part of the results."""

_MARK = "fabemu_sweep"  # key in sweep.json that says what the directory is


def default_directory(name: str, kind: str = "sweep") -> Path:
    """Where a sweep goes unless told otherwise: ``<scenario name>.sweep`` in the current directory."""
    safe = re.sub(r"[^A-Za-z0-9._-]+", "-", name).strip("-.")
    return Path(f"{safe or 'scenario'}.{kind}")


class SweepDirectory:
    """The directory of one sweep that this process writes, once it has begun."""

    def __init__(
        self,
        path: Path,
        info: Mapping[str, Any],
        journal: IO[bytes],
        *,
        is_new: bool,
        made: Sequence[Path],
        force: bool,
    ) -> None:
        """Take what `open_directory` has made or found.

        Parameters
        ----------
        path, info, force
            As there.
        journal
            Open, and locked.
        is_new
            Whether there was no sweep in the directory.
        made
            Directories that were not there, outermost first.
        """
        self.path = path
        self._info = dict(info)
        self._journal = journal
        self._is_new = is_new
        self._made = made
        self._force = force
        self.has_begun = False
        found = {} if force else read_journal(journal)
        self.done = {index: outcome for index, outcome in found.items() if outcome.status not in AGAIN}
        """Outcomes by index of the run, those that failed in an earlier session left out."""

    def begin(self) -> None:
        """Say that the sweep is running; with `force`, remove what an earlier one has left. Once is enough.

        Raises
        ------
        MachineError, OutputError
            The directory cannot be written.
        """
        if self.has_begun:
            return
        with _writable(self.path):
            if self._force:
                self._journal.truncate(0)
            # Before results go, or come: none are missing from a sweep that says that it is finished.
            self.write_info("running")
            self.has_begun = True
            if self._force:
                for folder in (RESULTS, COSTS, RUNS):
                    if (self.path / folder).is_dir():
                        shutil.rmtree(self.path / folder)
            for folder in (RESULTS, COSTS):
                (self.path / folder).mkdir(exist_ok=True)

    def end(self, status: str, **more: Any) -> None:
        """Leave a directory that says how far the sweep is; one that has not begun is left as it was found.

        Raises
        ------
        MachineError
            As `write_info`.
        """
        try:
            if self.has_begun:
                self.write_info(status, **more)
            elif self._is_new:
                _remove(self.path, self._made)
        finally:
            self.close()

    def add(self, outcome: Outcome) -> None:
        """Record an outcome, once and for all.

        Raises
        ------
        MachineError
            If it cannot be written.
        """
        try:
            self._journal.write(journal_line(outcome))
            self._journal.flush()
            os.fsync(self._journal.fileno())
        except OSError as error:
            raise MachineError(f"cannot write {self.path / JOURNAL}: {error.strerror or error}") from error
        self.done[outcome.index] = outcome

    def write_info(self, status: str, **more: Any) -> None:
        """Replace ``sweep.json``; readers see the old or the new one, never a part.

        Raises
        ------
        MachineError
            If there is no room for it. The old one stays, with the new status.
        """
        self._info |= {"status": status, **more}
        text = json.dumps(self._info, indent=2, ensure_ascii=False) + "\n"
        target = self.path / SWEEP_FILE
        try:
            write_whole(target, lambda draft: _write_text(draft, text))
        except MachineError:
            self._rewrite_status(target)
            raise

    def _rewrite_status(self, target: Path) -> None:
        """On a full disk, have the old ``sweep.json`` tell the new status, in the bytes that it has: they are there."""
        with contextlib.suppress(OSError, ValueError):
            before = target.read_bytes()
            kept = json.dumps(json.loads(before) | {"status": self._info["status"]}, ensure_ascii=False).encode(
                errors="backslashreplace"
            )
            if len(kept) <= len(before):
                with open(target, "r+b") as file:
                    file.write(kept.ljust(len(before)))

    def close(self) -> None:
        """Let another process go on with this sweep."""
        with contextlib.suppress(OSError):  # a line that did not fit has been told of
            self._journal.close()


def open_directory(path: Path, info: Mapping[str, Any], *, force: bool = False) -> SweepDirectory:
    """Make the directory of a sweep, or open that of the same one.

    Nothing in it changes before it begins, except that a last line of the journal that was cut off is removed.

    Parameters
    ----------
    path
        To be made, with its parents; an empty directory; or the directory of a sweep with the same ``digest``.
    info
        First content of ``sweep.json``; its ``digest`` says which sweep it is.
    force
        Begin anew, whatever sweep the directory holds. Only files of a sweep are removed.

    Raises
    ------
    OutputError
        The path holds another sweep, anything else, cannot be written, or another process is writing it.
    """
    _refuse_nesting(path)
    with _writable(path):
        made = [folder for folder in (*reversed(path.parents), path) if not folder.exists()]
        try:
            path.mkdir(parents=True, exist_ok=True)
        except OSError:
            _remove(path, made)
            raise
        is_old = any(path.iterdir())
        found = _read(path) if is_old else None
        damage = _damage(path) if is_old and found is None else None
        if damage is not None and not force:
            raise OutputError(
                f"{damage}: put a copy of it back, begin the sweep anew with --force, or choose another with --out"
            )
        if is_old and found is None and damage is None:
            raise OutputError(
                f"{path}: is not empty and not a sweep of fabemu, so it is left alone; choose another with --out"
            )
        if found is not None and not force and found.get("digest") != info["digest"]:
            raise OutputError(
                f"{path}: holds another sweep ({_difference(found, info)}); "
                "replace it with --force, or choose another with --out"
            )
        whole = {_MARK: FORMAT_VERSION, **info}
        if found is None and damage is None:
            # The mark comes first: a directory with anything else but no mark is not ours.
            text = json.dumps(whole | {"status": "running"}, ensure_ascii=False)
            try:
                write_whole(path / SWEEP_FILE, lambda draft: _write_text(draft, text))
            except MachineError:
                _remove(path, made)
                raise
        journal = open(path / JOURNAL, "a+b")  # noqa: SIM115, closed by SweepDirectory.close
        _lock(journal, path)
        return SweepDirectory(path, whole, journal, is_new=found is None and damage is None, made=made, force=force)


@contextlib.contextmanager
def _writable(path: Path) -> Iterator[None]:
    """Context in which what cannot be written is said to be the directory of the sweep."""
    try:
        yield
    except FileExistsError as error:
        at = error.filename or path  # a folder in it may be what is a file
        raise OutputError(f"{at}: is a file, not a directory; choose another with --out") from None
    except OSError as error:
        text = f"{path}: the sweep cannot be written: {error.strerror or error}; choose another with --out"
        raise (MachineError if is_full(error) else OutputError)(text) from error


def read_sweep_info(path: Path) -> dict[str, Any]:
    """Content of ``sweep.json``.

    Raises
    ------
    InputError
        If `path` is not the directory of a sweep, a damaged one, or of a newer fabemu.
    """
    info = _read(path)
    if info is None:
        damage = _damage(path)
        if damage is not None:
            raise InputError(f"{damage}: put a copy of it back, or begin the sweep anew with --force")
        what = "is not a sweep" if path.exists() else "does not exist"
        raise InputError(f"{path}: {what}; a sweep is a directory that `fabemu sweep` wrote")
    if info[_MARK] > FORMAT_VERSION:
        raise InputError(f"{path}: has format version {info[_MARK]}, this fabemu reads up to {FORMAT_VERSION}")
    return info


def write_whole(target: Path, write: Any) -> None:
    """Put a file in place whole, or not at all.

    Parameters
    ----------
    target
        The file; replaced if it is there.
    write
        Writes the file at the path that it is called with.

    Raises
    ------
    MachineError
        If that fails.
    """
    # Datasets leave out names that begin with a dot.
    draft = target.with_name(f".{target.name}.new")
    try:
        write(draft)
        with open(draft, "rb") as file:
            os.fsync(file.fileno())
        os.replace(draft, target)
    except OSError as error:
        with contextlib.suppress(OSError):
            draft.unlink(missing_ok=True)
        raise MachineError(f"cannot write {target}: {error.strerror or error}") from error


def part_path(path: Path, folder: str, part: int) -> Path:
    """The file of one part of the results, or of the costs."""
    return path / folder / f"part-{part:05d}.parquet"


def _write_text(target: Path, text: str) -> None:
    """Write JSON; bytes of a path that are no text (surrogates) become the escapes that JSON has for them."""
    target.write_text(text, encoding="utf-8", errors="backslashreplace")


def _read(path: Path) -> dict[str, Any] | None:
    try:
        info = json.loads((path / SWEEP_FILE).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return info if isinstance(info, dict) and isinstance(info.get(_MARK), int) else None


def _damage(path: Path) -> str | None:
    """What is wrong with the ``sweep.json`` of a directory that has the journal of a sweep; None if nothing is."""
    target, journal = path / SWEEP_FILE, path / JOURNAL
    if not journal.is_file() or not target.is_file() or _read(path) is not None:
        return None
    return f"{target}: the file is damaged, and without it {JOURNAL} does not say which sweep it is of"


def _refuse_nesting(path: Path) -> None:
    """Raise OutputError for a directory inside another sweep: `force` of that one, or its clean-up, would take both."""
    for outer in Path(os.path.realpath(path)).parents:
        if _read(outer) is not None:
            raise OutputError(f"{path}: lies in another sweep, {outer}; choose a directory outside it with --out")


def _remove(path: Path, made: Sequence[Path]) -> None:
    """Take back what `open_directory` has made; `made` are the directories that were not there, outermost first."""
    for name in (JOURNAL, SWEEP_FILE):
        with contextlib.suppress(OSError):
            (path / name).unlink(missing_ok=True)
    for folder in reversed(made):
        with contextlib.suppress(OSError):  # not made after all, or somebody else has put something there
            folder.rmdir()


def _lock(journal: IO[bytes], path: Path) -> None:
    try:
        fcntl.flock(journal, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        journal.close()
        raise OutputError(f"{path}: another process is at work on this sweep") from None
    except OSError:
        pass  # a file system without locks


def _difference(found: Mapping[str, Any], info: Mapping[str, Any]) -> str:
    """What tells two sweeps apart, for the user."""
    before, now = found.get("definition", {}), info["definition"]
    if not before:
        return "it was not begun properly"
    if found.get("version") != info.get("version"):
        return f"of fabemu {found.get('version')}"
    words = {"parameters": "parameters", "common": "settings", "seeds": "seeds", "design": "design", "points": "points"}
    if before.get("design") == now["design"] == "tune":
        del words["points"]  # those of a study become more as it goes
    differing = [word for key, word in words.items() if before.get(key) != now[key]]
    if found.get("tune") != info.get("tune") and not differing:
        return "with another objective, or not by the same optimiser"
    if differing:
        return f"with other {' and '.join(differing)}"
    return "the scenario, a file that it reads, or the seed of the design has changed"
