"""Workers on this machine: one process each, replaced when it dies."""

from __future__ import annotations

import contextlib
import errno
import io
import operator
import os
import selectors
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import IO

import fabemu
from fabemu.cost.machine import size_text
from fabemu.cost.shortage import THREADS_LACK, address_space_limit, frugal_environment, shortage, shortage_in
from fabemu.counted import counted
from fabemu.errors import InputError, MachineError
from fabemu.sweeps.task import Outcome, Task
from fabemu.sweeps.worker import READY, receive, send

_JOBS_MAX = 1024
_FRUITLESS = 3  # workers in a row that may die before they are ready
_AGAIN_SECONDS = 60  # with fewer processes than were asked for, before more are tried again


def check_jobs(jobs: int | None) -> int:
    """Processes to use: as asked for, or one for each core that this process may use.

    Raises
    ------
    InputError
        If it is below 1 or absurd.
    """
    if jobs is None:
        return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    try:
        count = operator.index(jobs)
    except TypeError:
        count = 0
    if not 1 <= count <= _JOBS_MAX:
        raise InputError(f"{jobs} jobs: give 1 to {_JOBS_MAX:,} processes")
    return count


class LocalWorkers:
    """Up to `jobs` worker processes of this machine."""

    def __init__(self, jobs: int) -> None:
        """Start nothing yet: a worker is started when there is a task for it."""
        self.slots = jobs
        self._jobs = jobs
        self._again_s = 0.0  # when to try again for as many processes as were asked for
        self._scratch = tempfile.TemporaryDirectory(prefix="fabemu-sweep-", ignore_cleanup_errors=True)
        self._selector = selectors.DefaultSelector()
        self._idle: list[_Worker] = []
        self._busy: set[_Worker] = set()
        self._held: list[Task] = []  # for which no further process could be started
        self._stillborn = 0  # in a row

    @property
    def name(self) -> str:
        """For the user: what does the work."""
        return counted(self.slots, "process")

    def submit(self, task: Task) -> None:
        """Give a task to a worker; at most `slots` at a time.

        If no further process can be started, those that there are do the work.

        Raises
        ------
        MachineError
            If there are none.
        """
        try:
            worker = self._idle.pop() if self._idle else self._start()
        except MachineError:
            if not self._busy:
                raise
            self._make_do(len(self._busy))
            self._held.append(task)
            return
        self._give(task, worker)

    def _make_do(self, slots: int) -> None:
        """Go on with so many processes for a while."""
        self.slots = slots
        self._again_s = time.monotonic() + _AGAIN_SECONDS

    def _give(self, task: Task, worker: _Worker) -> None:
        self._busy.add(worker)
        worker.task = task
        # A worker that is dying cannot take it; its end will be seen, and the task handed back.
        with contextlib.suppress(OSError):
            send(worker.tasks, task)

    def wait(self, seconds: float) -> list[Outcome]:
        """What has been done meanwhile, waiting if need be.

        Raises
        ------
        MachineError
            If no worker can be started.
        """
        outcomes = []
        for ready, _ in self._selector.select(seconds):
            worker: _Worker = ready.data
            try:
                outcome = receive(worker.answers)
                if outcome == READY:
                    worker.is_ready = True
                    self._stillborn = 0
                    continue
                self._idle.append(worker)
            except (EOFError, OSError):
                outcome = self._buried(worker)
            self._busy.discard(worker)
            worker.task = None
            if outcome is not None:
                outcomes.append(outcome)
        while self._held and (self._idle or (not self._busy and not outcomes)):
            self._give(self._held.pop(), self._idle.pop() if self._idle else self._start())
        if self.slots < self._jobs and not self._held and time.monotonic() >= self._again_s:
            self.slots = self._jobs
        return outcomes

    def close(self) -> None:
        """End all workers, whatever they are doing."""
        for worker in [*self._idle, *self._busy]:
            worker.kill()
        self._idle.clear()
        self._busy.clear()
        self._held.clear()
        self._selector.close()
        self._scratch.cleanup()

    def _start(self) -> _Worker:
        worker = _Worker(self._scratch.name)
        self._selector.register(worker.answers, selectors.EVENT_READ, worker)
        return worker

    def _buried(self, worker: _Worker) -> Outcome | None:
        """What a worker that died leaves; None if it had no task, or another one is to do it."""
        self._selector.unregister(worker.answers)
        if worker in self._idle:
            self._idle.remove(worker)
        text = worker.bury()
        if worker.task is None:
            return None
        if worker.is_ready:
            return Outcome(worker.task.index, "failed", error=f"the worker process died: {text}{_hint(text)}")
        # It died of its start and not of its task, which another one takes: those that there are, or one more.
        others = len(self._idle) + len(self._busy - {worker})
        if others:
            self._make_do(others)
        else:
            self._stillborn += 1
            if self._stillborn >= _FRUITLESS:
                subject, lack = "no worker process can be started", shortage_in(text)
                raise lack.error(subject) if lack else MachineError(f"{subject}: {text}{_hint(text)}")
        self._held.append(worker.task)
        return None


class _Worker:
    """One process."""

    def __init__(self, scratch: str) -> None:
        self.task: Task | None = None
        self.is_ready = False
        self._scratch = scratch
        talk: IO[bytes] | None = None
        try:
            self._scratch = tempfile.mkdtemp(dir=scratch)
            talk = self._talk = tempfile.TemporaryFile()  # noqa: SIM115, closed when the worker is buried
            self._process: subprocess.Popen[bytes] = subprocess.Popen(
                [sys.executable, "-m", "fabemu.sweeps.worker"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._talk,
                bufsize=0,  # what is read ahead of a message would not be seen to be there
                env=_environment(self._scratch),
                start_new_session=True,  # Ctrl-C is for the one who sends the tasks
            )
        except (OSError, MemoryError) as error:
            if talk is not None:
                talk.close()
            lack = shortage(error) or (THREADS_LACK if getattr(error, "errno", 0) == errno.EAGAIN else None)
            subject = "cannot start a worker process"
            raise (lack.error(subject) if lack else MachineError(f"{subject}: {error}")) from error
        assert self._process.stdin is not None and self._process.stdout is not None
        self.tasks, self.answers = io.BufferedWriter(self._process.stdin), self._process.stdout  # type: ignore[type-var]

    def kill(self) -> None:
        """End it."""
        with contextlib.suppress(OSError):
            self._process.kill()
        self._process.wait()
        self._close()

    def bury(self) -> str:
        """Say how it ended by itself."""
        try:
            code = self._process.wait(5)  # its pipe is closed: it has ended, or is about to
        except subprocess.TimeoutExpired:
            self.kill()
            return "it stopped answering"
        self._talk.seek(0)
        lines = self._talk.read().decode(errors="replace").strip().splitlines()
        self._close()
        ended = f"exit code {code}" if code >= 0 else f"killed by {_signal_name(-code)}"
        return f"{ended}; it said: {lines[-1].strip()}" if lines else ended

    def _close(self) -> None:
        for pipe in (self.tasks, self.answers):
            with contextlib.suppress(OSError):
                pipe.close()
        shutil.rmtree(self._scratch, ignore_errors=True)
        self._talk.close()


def _hint(text: str) -> str:
    """What may be behind the death of a process in an address space that is limited."""
    limit = address_space_limit()
    if limit is None or shortage_in(text) is not None:
        return ""
    return f"; its address space is limited to {size_text(limit)} (ulimit -v)"


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _environment(scratch: str) -> dict[str, str]:
    """The same fabemu for workers, one thread each, and a place for files that goes away with the workers."""
    paths = [str(Path(fabemu.__file__).resolve().parents[1]), os.environ.get("PYTHONPATH", "")]
    one = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS"), "1")
    return {
        **frugal_environment(),
        **os.environ,
        **one,
        "PYTHONPATH": os.pathsep.join(filter(None, paths)),
        "TMPDIR": scratch,
    }
