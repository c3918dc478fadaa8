"""Workers of an existing Dask cluster, by the address of its scheduler.

The scheduler knows its workers: a run whose worker is lost is given to another one, and its outcome counts once.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import queue
import re
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from fabemu.counted import counted
from fabemu.errors import InputError, MachineError
from fabemu.simulate import input_files, with_path
from fabemu.sweeps.task import Outcome, Task, run_task
from fabemu.version import version

CONNECT_SECONDS = 5
"""A scheduler that has not answered by then does not answer."""

_LOST_SECONDS = 10  # without the scheduler, before the sweep gives up
_SLOTS_SECONDS = 2  # how often the size of the cluster is asked for
_PER_THREAD = 2  # tasks at the cluster for each of its threads: one at work and one at hand
_ADDRESS = re.compile(r"(?:[a-z]+://)?(?:\[[0-9a-fA-F:]+\]|[^\s:/\[\]]+):(\d{1,5})/?")
_PORT_MAX = 65535
_EXTRA = "--dask needs dask.distributed: install it with pip install 'fabemu[dask]'"


def check_address(address: str) -> str:
    """The address of a scheduler.

    Raises
    ------
    InputError
        If it is none, or dask.distributed is not installed.
    """
    match = _ADDRESS.fullmatch(address)
    if match is None or not 1 <= int(match[1]) <= _PORT_MAX:
        raise InputError(f"{address!r} is not the address of a Dask scheduler: write for example tcp://10.0.0.1:8786")
    try:
        import distributed  # noqa: F401
    except ImportError:
        raise InputError(_EXTRA) from None
    return address


class DaskWorkers:
    """The workers of a Dask cluster."""

    def __init__(self, address: str) -> None:
        """Connect.

        Raises
        ------
        MachineError
            If the scheduler does not answer within seconds, or a worker cannot do runs of this fabemu.
        """
        from distributed import Client

        # What it logs of every lost connection would end up between progress bar and messages.
        for name in ("distributed", "tornado.application"):
            logging.getLogger(name).setLevel(logging.CRITICAL)
        self._address = address
        _check_scheduler(address)
        try:
            self._client = Client(address, timeout=CONNECT_SECONDS, set_as_default=False)
        except (OSError, ValueError) as error:
            raise MachineError(f"the Dask scheduler at {address} does not answer: {_root_of(error)}") from error
        self._futures: dict[int, Any] = {}
        self._inputs: dict[tuple[str, ...], Any] = {}
        self._answers: queue.SimpleQueue[tuple[int, Any]] = queue.SimpleQueue()
        self._asked = self._heard = time.monotonic()
        self.slots = 1
        try:
            self._check_workers()
            self._count_slots()
        except BaseException:
            self.close()
            raise

    @property
    def name(self) -> str:
        """For the user: what does the work."""
        workers = len(self._client.scheduler_info(n_workers=-1)["workers"])
        return f"the Dask cluster at {self._address} with {counted(workers, 'worker')}"

    def submit(self, task: Task) -> None:
        """Give a task to the cluster.

        Raises
        ------
        MachineError
            If the scheduler is lost.
        """
        try:
            task, files = self._without_disk(task)
            # Neither the same task tried again nor that of another sweep may be taken for this one: no key twice.
            future = self._client.submit(_run, task, files, pure=False)
        except Exception as error:  # a client without a scheduler fails in many ways
            try:
                _check_scheduler(self._address)
            except MachineError:
                raise self._loss() from error
            raise
        self._futures[task.index] = future
        future.add_done_callback(lambda ended, index=task.index: self._answers.put((index, ended)))

    def wait(self, seconds: float) -> list[Outcome]:
        """What has been done meanwhile, waiting if need be.

        Raises
        ------
        MachineError
            If the scheduler is lost.
        """
        outcomes: list[Outcome] = []
        deadline = time.monotonic() + seconds
        while True:
            try:
                index, future = self._answers.get(timeout=max(deadline - time.monotonic(), 0) if not outcomes else 0)
            except queue.Empty:
                break
            if self._futures.get(index) is future:
                del self._futures[index]
                outcomes.append(self._outcome(index, future))
        self._watch()
        return outcomes

    def close(self) -> None:
        """Take back what the cluster has not done; the cluster itself goes on."""
        with contextlib.suppress(Exception):
            if self._client.status == "running" and self._futures:
                self._client.cancel(list(self._futures.values()), force=True)
        self._futures.clear()
        with contextlib.suppress(Exception):
            self._client.close(timeout=CONNECT_SECONDS)

    def _outcome(self, index: int, future: Any) -> Outcome:
        if future.status == "finished":
            try:
                result: Outcome = future.result(timeout=_LOST_SECONDS)
                return result
            except Exception as error:  # the worker that had it is gone, and the outcome with it
                return Outcome(index, "failed", error=f"the outcome was lost: {type(error).__name__}: {error}")
        if future.status == "error":
            try:
                reason = _reason(future.exception(timeout=_LOST_SECONDS))
            except Exception as error:
                reason = _reason(error)
            return Outcome(index, "failed", error=reason)
        return Outcome(index, "failed", error=f"the cluster gave the run up ({future.status})")

    def _watch(self) -> None:
        """Notice a scheduler that is gone, and workers that come and go."""
        now = time.monotonic()
        if self._client.status == "running":
            self._heard = now
        elif now - self._heard > _LOST_SECONDS or self._client.status == "closed":
            raise self._loss()
        if now - self._asked >= _SLOTS_SECONDS:
            self._asked = now
            self._count_slots()

    def _loss(self) -> MachineError:
        return MachineError(
            f"the Dask scheduler at {self._address} is lost; what is done is kept, and the same command goes on"
        )

    def _count_slots(self) -> None:
        # It is asked again; a scheduler that is gone is noticed elsewhere.
        with contextlib.suppress(Exception):
            threads = self._client.nthreads()
            self.slots = max(_PER_THREAD * sum(threads.values()), 1)

    def _check_workers(self) -> None:
        """See that every worker that is there now has this fabemu."""
        try:
            versions = self._client.run(_worker_version, on_error="return")
        except Exception as error:
            raise MachineError(f"the Dask cluster at {self._address} cannot be used: {_reason(error)}") from error
        for worker, found in versions.items():
            if isinstance(found, BaseException):
                raise MachineError(
                    f"the Dask worker {worker} cannot use fabemu: {_reason(found)}; "
                    f"install fabemu {version()} where the workers run"
                )
            if found != version():
                raise MachineError(f"the Dask worker {worker} has fabemu {found}, but this is fabemu {version()}")

    def _without_disk(self, task: Task) -> tuple[Task, Any]:
        """The task with the files that it reads: workers need not see the disk of the user."""
        found = input_files(task.scenario, Path(task.base_dir))
        if not found:
            return task, None
        scenario = task.scenario
        for number, (place, path) in enumerate(found.items()):
            scenario = with_path(scenario, place, f"{number}-{path.name}")
        mark = tuple(os.fspath(path) for path in found.values())
        if mark not in self._inputs:
            content = {}
            for number, path in enumerate(found.values()):
                with contextlib.suppress(OSError):  # the run will say that it is not there
                    content[f"{number}-{path.name}"] = path.read_bytes()
            self._inputs[mark] = self._client.scatter(content, broadcast=True, hash=False)
        return Task(**{**vars(task), "scenario": scenario}), self._inputs[mark]


def _check_scheduler(address: str) -> None:
    """See that a scheduler answers; raises MachineError otherwise."""
    try:
        # In a thread of its own: in a notebook this one has a loop that runs.
        with ThreadPoolExecutor(1) as thread:
            found = thread.submit(asyncio.run, _identity(address)).result()
    except TimeoutError:
        found = f"nothing within {CONNECT_SECONDS} s"
    except OSError as error:
        found = _root_of(error)
    except Exception as error:  # whatever is there may answer anything
        found = f"what is there is no Dask scheduler ({type(error).__name__})"
    if found != "Scheduler":
        what = "that is a Dask worker" if found in ("Worker", "Nanny") else found
        raise MachineError(
            f"the Dask scheduler at {address} does not answer: {what}; is it running, and reachable from here?"
        )


def _root_of(error: BaseException) -> str:
    """What is behind an error of the network, in short."""
    while error.__cause__ is not None:
        error = error.__cause__
    return error.strerror if isinstance(error, OSError) and error.strerror else str(error) or type(error).__name__


async def _identity(address: str) -> str:
    """What answers at an address: "Scheduler" if all is well."""
    from distributed.core import rpc
    from distributed.security import Security

    security = Security().get_connection_args("client")
    async with rpc(address, timeout=CONNECT_SECONDS, connection_args=security) as scheduler:
        answer = await asyncio.wait_for(scheduler.identity(), CONNECT_SECONDS)
    return str(answer.get("type"))


def _run(task: Task, files: dict[str, bytes] | None) -> Outcome:
    """Do one run as a worker of Dask, which cannot stop what it has begun when it is cancelled: see for ourselves."""
    from distributed import get_worker

    worker = get_worker()
    key = worker.get_current_task()

    def is_wanted() -> bool:
        found = worker.state.tasks.get(key)
        return found is not None and found.state != "cancelled"

    return run_task(task, files, is_wanted)


def _worker_version() -> str:
    return version()


def _reason(error: BaseException | None) -> str:
    text = f"{type(error).__name__}: {error}".strip().splitlines()[0]
    return "the workers that had it died, one after another" if type(error).__name__ == "KilledWorker" else text
