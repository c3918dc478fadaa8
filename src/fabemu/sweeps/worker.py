"""``python -m fabemu.sweeps.worker``: does the tasks that come through its standard input, one after another.

A process of its own instead of a fork or a pool of the standard library: nothing of the caller is run again, a worker
that dies takes no other one with it, and which task it had is known.
"""

from __future__ import annotations

import os
import pickle
import queue
import struct
import sys
import threading
from typing import IO, Any

from fabemu.sweeps.task import run_task

READY = "ready"
"""First message of a worker: what it needs is there, and how it may end is not for want of it."""

_LENGTH = struct.Struct("<Q")


def send(stream: IO[bytes], message: Any) -> None:
    """Write one message."""
    content = pickle.dumps(message, protocol=pickle.HIGHEST_PROTOCOL)
    stream.write(_LENGTH.pack(len(content)) + content)
    stream.flush()


def receive(stream: IO[bytes]) -> Any:
    """Read one message; raises EOFError if there will be none, or only a part."""
    (size,) = _LENGTH.unpack(_exactly(stream, _LENGTH.size))
    return pickle.loads(_exactly(stream, size))


def _exactly(stream: IO[bytes], size: int) -> bytes:
    content = b""
    while len(content) < size:
        more = stream.read(size - len(content))
        if not more:
            raise EOFError
        content += more
    return content


def _read_tasks(source: IO[bytes], tasks: queue.SimpleQueue[Any]) -> None:
    """Pass tasks on; when the caller is gone, so is the reason to go on with the task at hand."""
    while True:
        try:
            tasks.put(receive(source))
        except EOFError:
            os._exit(0)
        except BaseException as error:
            # A task that this process has no memory to read: nobody but the caller can do anything about it.
            sys.stderr.write(f"{type(error).__name__}: {error}\n")
            sys.stderr.flush()
            os._exit(1)


def main() -> None:
    """Serve until standard input ends."""
    # What a library may print must not end up among the answers.
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    tasks: queue.SimpleQueue[Any] = queue.SimpleQueue()
    threading.Thread(target=_read_tasks, args=(sys.stdin.buffer, tasks), daemon=True).start()
    send(answers, READY)
    while True:
        send(answers, run_task(tasks.get()))


if __name__ == "__main__":
    main()
