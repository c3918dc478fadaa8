"""What this machine ran out of, told from whatever was raised for want of it."""

from __future__ import annotations

import contextlib
import errno
import resource
from collections.abc import Callable, Iterator
from functools import partial

from fabemu.cost.machine import Room, room, size_text
from fabemu.deferred import dataclass
from fabemu.errors import AtHand, MachineError

START_BYTES = 500_000_000
"""Address space that a process takes until the first packet of a small run, libraries and threads included."""

# What loaders, interpreters and libraries say, in whatever exception.
_MEMORY_SIGNS = ("MemoryError", "failed to map segment", "cannot allocate memory", "allocation_failed", "bad_alloc")
_THREAD_SIGNS = ("can't start new thread", "failed to launch worker thread")


@dataclass(frozen=True)
class Shortage:
    """What was lacking, and what gives the rest of the sentence: a way out for those who read it."""

    what: str
    advise: Callable[[AtHand], str]

    def error(self, subject: str = "") -> MachineError:
        """As an error; `subject` is what could not be done for it."""
        return MachineError(f"{subject}: {self.what}" if subject else self.what, self.advise)

    def __str__(self) -> str:
        """For anybody."""
        return str(self.error())


def _fewer_threads(at_hand: AtHand) -> str:
    named = [f"{option} 1" for option in ("--threads", "--jobs") if option in at_hand.options]
    fewer = f", or use fewer: {', '.join(named)}" if named else ""
    return f"; raise its limits (ulimit -u, ulimit -v){fewer}"


def _more_files(_: AtHand) -> str:
    return "; raise the limit (ulimit -n)"


THREADS_LACK = Shortage("this machine gives no more threads or processes", _fewer_threads)
"""What it is when a thread or a process could not be started."""

_FILES_LACK = Shortage("too many files are open", _more_files)


def shortage(error: BaseException) -> Shortage | None:
    """What was lacking; None if the error is about something else.

    Parameters
    ----------
    error
        From any library: those that cannot be loaded, or start a thread, for want of memory say so in their own ways.
    """
    for link in _chain(error):
        text = str(link)
        if isinstance(link, MemoryError):
            return _memory_lack(text)
        if isinstance(link, OSError) and link.errno in (errno.EMFILE, errno.ENFILE):
            return _FILES_LACK
        if isinstance(link, OSError) and link.errno == errno.ENOMEM:
            return _memory_lack()
        if (found := shortage_in(text)) is not None:
            return found
    return None


def shortage_in(text: str) -> Shortage | None:
    """The same of an error that is known by its text alone."""
    lower = text.lower()
    if any(sign in lower for sign in _THREAD_SIGNS):
        return THREADS_LACK
    if any(sign.lower() in lower for sign in _MEMORY_SIGNS):
        return _memory_lack()
    return None


def check_address_space() -> None:
    """Refuse to simulate in an address space too small for the libraries alone: where they fail, and how, is chance.

    Raises
    ------
    MachineError
        ``ulimit -v`` is below what a small run takes.
    """
    limit = address_space_limit()
    if limit is not None and limit < START_BYTES:
        raise MachineError(
            f"not enough memory: a run takes at least {size_text(START_BYTES)} of address space, and there is "
            f"{size_text(limit)} (ulimit -v); raise the limit, or lift it: ulimit -v unlimited"
        )


def address_space_limit() -> int | None:
    """Bytes of ``ulimit -v``; None if there is no limit."""
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    return None if limit == resource.RLIM_INFINITY else limit


def frugal_environment() -> dict[str, str]:
    """Variables that keep libraries from reserving far more address space than they use, if that is limited."""
    if address_space_limit() is None:
        return {}
    # Arrow's allocator reserves 1 GiB at once, and each of its threads 70 MB.
    return {"ARROW_DEFAULT_MEMORY_POOL": "system", "ARROW_IO_THREADS": "1", "OMP_NUM_THREADS": "1"}


def _chain(error: BaseException) -> Iterator[BaseException]:
    """An error and those that it came from."""
    seen: set[int] = set()
    link: BaseException | None = error
    while link is not None and id(link) not in seen:
        seen.add(id(link))
        yield link
        link = link.__cause__ or (None if link.__suppress_context__ else link.__context__)


def _memory_lack(detail: str = "") -> Shortage:
    there_is: Room | None = None
    with contextlib.suppress(MemoryError, OSError):
        there_is = room()
    # NumPy goes on with shape and type of the array.
    detail = detail.partition(" for an array")[0]
    return Shortage(f"out of memory{f': {detail}' if detail else ''}", partial(_less_memory, there_is))


def _less_memory(there_is: Room | None, at_hand: AtHand) -> str:
    text = "; "
    if there_is is not None:
        text += f"there is {there_is}: {'raise the limit, or ' if there_is.limit == 'ulimit -v' else ''}"
    if at_hand.subject == "run":
        return (
            f"{text}use a machine with more memory, or a run with smaller tables: fewer messages, or "
            "`fabemu run --trace flows`"
        )
    if at_hand.subject == "other":
        return f"{text}use a machine with more memory, or give it less to read"
    text += "try fewer messages or hosts"
    text += ", or --trace flows" if "--trace" in at_hand.options else ""
    text += ", or fewer runs at a time: --jobs 1" if "--jobs" in at_hand.options else ""
    # Whoever has --cost is using it, or is about to.
    return text if "--cost" in at_hand.options else f"{text}; `fabemu check --cost` shows what takes memory"
