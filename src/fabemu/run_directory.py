"""The directory of one run: made without overwriting, its ``run.json`` replaced atomically.

``run.json`` is there from the first moment (status ``running``), so an interrupted or killed run never looks complete.
"""

from __future__ import annotations

import contextlib
import errno
import json
import math
import os
import re
import shutil
import weakref
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from fabemu.errors import InputError, MachineError, OutputError, is_full
from fabemu.trace import SCHEMA_VERSION, TABLES, table_path

FORMAT_VERSION = 1
"""Version of run.json; grows when a key changes its meaning or goes away."""

RUN_FILE = "run.json"
SCENARIO_FILE = "scenario.toml"
INPUTS = "inputs"
STATUSES = ("running", "finished", "interrupted", "failed", "fault")

_MARK = "fabemu_run"  # key in run.json that says what the directory is


def default_directory(name: str) -> Path:
    """Where a run goes unless told otherwise: ``<scenario name>.run`` in the current directory."""
    safe = re.sub(r"[^A-Za-z0-9._-]+", "-", name).strip("-.")
    return Path(f"{safe or 'scenario'}.run")


class RunDirectory:
    """One run directory that this process writes."""

    def __init__(self, path: Path) -> None:
        """Take a directory that `create` has made."""
        self.path = path
        self._written: tuple[int, int] | None = None  # device and inode of the run.json that this run wrote last
        self._release: weakref.finalize[..., RunDirectory] | None = None  # closes that file

    @classmethod
    def create(
        cls, path: Path, info: Mapping[str, Any], *, force: bool = False, keep: Iterable[Path] = ()
    ) -> RunDirectory:
        """Make a run directory and claim it with a ``run.json`` of status ``running``.

        Parameters
        ----------
        path
            To be made, with its parents; or an empty directory.
        info
            First content of ``run.json``.
        force
            Replace the run that `path` holds. Only files of a run are removed, and only from a run directory.
        keep
            Files that are read by the run and must not be removed by `force`.

        Raises
        ------
        OutputError
            If the path holds a run and `force` is not set, holds anything else, is a file, or cannot be written.
        MachineError
            If the disk is full.
        """
        made = [folder for folder in (*reversed(path.parents), path) if not os.path.exists(folder)]
        directory = cls(path)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            try:
                path.mkdir()
            except FileExistsError:
                _clear(path, force=force, keep=keep)
            # "x" claims: of two runs started at once one fails here.
            with open(path / RUN_FILE, "x", encoding="utf-8") as file:
                directory._hold(os.dup(file.fileno()))
                file.write(_json({_MARK: FORMAT_VERSION, "status": "running", **info}))
        except FileExistsError as error:
            name = error.filename or path
            if Path(name) == path / RUN_FILE:
                raise OutputError(f"{path}: another run has just been started in this directory") from None
            raise OutputError(f"{path}: cannot be made: {name} is a file") from None
        except (OSError, ValueError) as error:
            directory._take_back(made)
            reason = error.strerror if isinstance(error, OSError) and error.strerror else error
            text = f"{path}: the run directory cannot be written: {reason}; choose another with -o"
            raise (MachineError if is_full(error) else OutputError)(text) from error
        return directory

    def _take_back(self, made: Sequence[Path]) -> None:
        """Leave no run.json of this run that was cut off, and none of the directories that were made for it."""
        with contextlib.suppress(OSError):
            if self._written is not None:
                (self.path / RUN_FILE).unlink()
        for folder in reversed(made):
            with contextlib.suppress(
                OSError, ValueError
            ):  # not made after all, or somebody else has put something there
                folder.rmdir()

    def write_info(self, info: Mapping[str, Any]) -> None:
        """Replace ``run.json``; readers see the old or the new one, never a part.

        Raises
        ------
        MachineError
            If it cannot be written.
        OutputError
            If another run has replaced this one meanwhile: its ``run.json`` is left alone.
        """
        text = _json({_MARK: FORMAT_VERSION, **info})
        target, draft = self.path / RUN_FILE, self.path / f"{RUN_FILE}.new"
        self._check_owner(target)
        held: int | None = None
        try:
            try:
                with open(draft, "w", encoding="utf-8") as file:
                    file.write(text)
                    file.flush()
                    os.fsync(file.fileno())
                    held = os.dup(file.fileno())
                os.replace(draft, target)
                self._hold(held)
            except OSError:
                if held is not None:
                    os.close(held)
                draft.unlink(missing_ok=True)
                _rewrite(target, text, info.get("status"))
        except OSError as error:
            raise MachineError(f"cannot write {target}: {error.strerror or error}") from error

    def _hold(self, file: int) -> None:
        """Know the run.json that has just been written again: open, its inode cannot become that of another file."""
        if self._release is not None:
            self._release()
        self._release = weakref.finalize(self, os.close, file)
        self._written = _identity(os.fstat(file))

    def _check_owner(self, target: Path) -> None:
        try:
            found = _identity(os.stat(target))
        except OSError:
            return  # writing will tell what is wrong
        if self._written is not None and found != self._written:
            raise OutputError(f"{self.path}: another run has replaced this one with --force; its tables are gone")

    def write_scenario(self, text: str) -> None:
        """Write ``scenario.toml``.

        Raises
        ------
        MachineError
            If it cannot be written.
        """
        target = self.path / SCENARIO_FILE
        try:
            target.write_text(text, encoding="utf-8")
        except OSError as error:
            raise MachineError(f"cannot write {target}: {error.strerror or error}") from error

    def copy_input(self, source: Path) -> str:
        """Copy a file that the scenario reads to ``inputs/``.

        Returns
        -------
        str
            Its path relative to the run directory.

        Raises
        ------
        MachineError
            If it cannot be copied.
        """
        folder = self.path / INPUTS
        try:
            folder.mkdir(exist_ok=True)
            target = folder / source.name
            number = 1
            while target.exists():
                number += 1
                target = folder / f"{source.stem}-{number}{source.suffix}"
            shutil.copyfile(source, target)
        except OSError as error:
            raise MachineError(f"cannot copy {source} to {folder}: {error.strerror or error}") from error
        return f"{INPUTS}/{target.name}"


def read_info(path: Path) -> dict[str, Any]:
    """Content of ``run.json``.

    Raises
    ------
    InputError
        If `path` is no run directory, or one of a newer fabemu.
    """
    if not path.is_dir():
        what = "is not a directory" if path.exists() else "does not exist"
        raise InputError(f"{path}: {what}; a run directory is what `fabemu run` wrote")
    try:
        info = json.loads((path / RUN_FILE).read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise InputError(f"{path}: is not a run directory: it has no {RUN_FILE}") from None
    except OSError as error:
        raise InputError(f"{path / RUN_FILE}: cannot be read: {error.strerror or error}") from error
    except ValueError as error:
        raise InputError(f"{path / RUN_FILE}: the file is damaged ({error}); run the scenario again") from error
    if not isinstance(info, dict) or not isinstance(info.get(_MARK), int):
        raise InputError(f"{path / RUN_FILE}: is not the {RUN_FILE} of a fabemu run")
    if info[_MARK] > FORMAT_VERSION:
        raise InputError(
            f"{path / RUN_FILE}: has format version {info[_MARK]}, this fabemu reads up to {FORMAT_VERSION}; "
            "use a newer fabemu"
        )
    return info


def check_schema_version(path: Path, info: Mapping[str, Any]) -> None:
    """Refuse tables that this version does not read.

    Raises
    ------
    InputError
        The run is of a newer fabemu.
    """
    trace = info.get("trace")
    found = trace.get("schema_version") if isinstance(trace, dict) else None
    if isinstance(found, int) and found > SCHEMA_VERSION:
        raise InputError(
            f"{path}: its tables have schema version {found}, this fabemu reads up to {SCHEMA_VERSION}; "
            f"it was written by fabemu {info.get('version')}: read it with that version"
        )


def _clear(path: Path, *, force: bool, keep: Iterable[Path]) -> None:
    """Make an existing path an empty run directory, or say why not."""
    if not path.is_dir():
        raise OutputError(f"{path}: is a file, not a directory; choose another with -o")
    if not any(path.iterdir()):
        return
    try:
        read_info(path)
    except InputError as error:
        if (path / RUN_FILE).exists():
            raise OutputError(
                f"{path}: is not a run directory of fabemu, or its {RUN_FILE} is damaged, so it is left alone; remove "
                "it, or choose another with -o"
            ) from error
        raise OutputError(
            f"{path}: is not empty and not a run directory of fabemu, so it is left alone; choose another with -o"
        ) from None
    if not force:
        raise OutputError(f"{path}: holds a run already; replace it with --force, or choose another with -o")
    inside = path.resolve()
    for file in keep:
        if inside in file.resolve().parents and file.resolve() != inside / SCENARIO_FILE:
            raise OutputError(f"{path}: cannot be replaced, because the scenario reads {file}; choose another with -o")
    for name in (RUN_FILE, f"{RUN_FILE}.new", SCENARIO_FILE):
        (path / name).unlink(missing_ok=True)
    for table in TABLES:
        table_path(path, table).unlink(missing_ok=True)
    inputs = path / INPUTS
    if inputs.is_symlink() or inputs.is_file():
        inputs.unlink()
    elif inputs.is_dir():
        shutil.rmtree(inputs)


def _rewrite(target: Path, text: str, status: Any) -> None:
    """On a full disk, put a text into the blocks that a file has; if it does not fit, only have it tell the status."""
    before = target.read_bytes()
    room = max(len(before), os.stat(target).st_blocks * 512)
    data = text.encode()
    if len(data) > room:
        data = json.dumps(json.loads(before) | {"status": status}, ensure_ascii=False).encode()
    if len(data) > room:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    with open(target, "r+b") as file:
        file.write(data)
        file.truncate()


def _json(value: Mapping[str, Any]) -> str:
    return json.dumps(plain(value), indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def plain(value: Any) -> Any:
    """A value as JSON can hold it; what is infinite or not a number becomes null."""
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if hasattr(value, "item") and not isinstance(value, str):  # numpy scalars
        value = value.item()
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if value is None or isinstance(value, bool | int | str):
        return value
    return str(value)


def _identity(status: os.stat_result) -> tuple[int, int]:
    return status.st_dev, status.st_ino
