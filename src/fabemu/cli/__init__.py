"""The ``fabemu`` command: subcommands, and what each error says and exits with.

Exit codes: 0 fine; 1 messages failed, queues deadlocked, or messages never finished although the run went to its end
(one that `until` ends with messages on their way is 0); 2 the input is wrong or the output cannot be written; 3 a fault
in fabemu; 4 `compare` or `health` found more than was allowed; 5 the machine failed; 129, 130 or 143 interrupted; 141
nobody read the output of `perf` or `export` to its end (other commands have more to do than that, and do it).
"""

from __future__ import annotations

import atexit
import errno
import gc
import os
import resource
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any, NoReturn

import click

from fabemu.cli.streams import CutOff, discard_output, open_streams

if TYPE_CHECKING:
    from fabemu.errors import AtHand

EXIT_FINE, EXIT_UNFINISHED, EXIT_INPUT, EXIT_FAULT, EXIT_WORSE, EXIT_MACHINE = 0, 1, 2, 3, 4, 5
EXIT_HUNG_UP, EXIT_INTERRUPTED, EXIT_CUT_OFF, EXIT_TERMINATED = 129, 130, 141, 143

# Place and one line of help of each subcommand; its module is imported when the subcommand is used.
_COMMANDS = {
    "budget": ("fabemu.cli.budget:command", "Split the completion time of messages into what it was spent on."),
    "check": ("fabemu.cli.check:command", "Validate a scenario, and find what would spoil it."),
    "compare": ("fabemu.cli.compare:command", "Show runs side by side, and fail if one is worse than allowed."),
    "explain": ("fabemu.cli.explain:command", "Say what a code of `check` or `health` means."),
    "export": (
        "fabemu.cli.export:export_group",
        "Write what a run recorded, or a scenario does, in the formats of other tools.",
    ),
    "health": ("fabemu.cli.health:command", "Look through a run as a fabric monitor would, by incident."),
    "import": (
        "fabemu.cli.import_:import_group",
        "Turn files and traces of other tools into scenarios, of SONiC switches into profiles.",
    ),
    "jobs": ("fabemu.cli.jobs:command", "Run the jobs of a scenario together and alone: what they cost each other."),
    "perf": ("fabemu.cli.perf:command", "Run a collective over a range of sizes, as nccl-tests shows it."),
    "report": ("fabemu.cli.report:command", "Write what a run came to as one HTML page; say it in sentences."),
    "run": ("fabemu.cli.run:command", "Simulate a scenario and write its traces."),
    "schema": ("fabemu.cli.schema:command", "Print the JSON schema of scenario files, for editors."),
    "sweep": ("fabemu.cli.sweep:command", "Simulate a scenario at many points of its parameters."),
    "tune": ("fabemu.cli.tune:command", "Let an optimiser look for the best parameters of a scenario."),
}


class Simulating(click.Command):
    """A command that simulates: it is refused where there is no room for that, whatever it is to simulate."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command, if the address space holds the libraries that it imports."""
        from fabemu.cost.shortage import check_address_space

        check_address_space()
        return super().invoke(ctx)


class _Group(click.Group):
    """Imports a subcommand only when it is used, so that the command starts fast."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Names of the subcommands."""
        return sorted(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The subcommand, imported now."""
        if cmd_name not in _COMMANDS:
            return None
        module, _, attribute = _COMMANDS[cmd_name][0].partition(":")
        found = getattr(import_module(module), attribute)
        assert isinstance(found, click.Command)
        return found

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The subcommand that the arguments name, or an error with the nearest ones.

        It is added to a list that the context has been given, if any.
        """
        if args and args[0] not in _COMMANDS and not args[0].startswith("-"):
            import difflib

            near = difflib.get_close_matches(args[0], _COMMANDS, 1)
            hint = f"; did you mean {near[0]!r}?" if near else f"; the commands are {', '.join(sorted(_COMMANDS))}"
            if os.path.isfile(args[0]):
                hint = f"; did you mean 'fabemu run {args[0]}'?"
            ctx.fail(f"no command {args[0]!r}{hint}")
        name, found, left = super().resolve_command(ctx, args)
        if isinstance(ctx.obj, list) and found is not None:
            ctx.obj.append(_innermost(found, left))
        return name, found, left

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the subcommands without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in sorted(_COMMANDS.items())])


def _innermost(found: click.Command, arguments: Sequence[str]) -> click.Command:
    """The subcommand of a subcommand, if the arguments name one."""
    inner = found.commands.get(arguments[0]) if isinstance(found, click.Group) and arguments else None
    return found if inner is None else inner


def _version(ctx: click.Context, _: click.Parameter, wanted: bool) -> None:
    if wanted and not ctx.resilient_parsing:
        from fabemu.version import version

        click.echo(f"fabemu {version()}")
        ctx.exit()


@click.group(
    cls=_Group,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="Exit codes: 0 fine; 1 messages failed, queues deadlocked, or messages never finished although the run "
    "went to its end (a run ended by `until` with messages on their way is 0); 2 wrong input or output; 3 fault in "
    "fabemu; 4 `compare` or `health` found more than was allowed; 5 machine failed (disk full, out of memory); "
    "129/130/143 interrupted; 141 nobody read the output of `perf` or `export` to its end.",
)
@click.option(
    "--version", is_flag=True, callback=_version, expose_value=False, is_eager=True, help="Print the version."
)
def command() -> None:
    """Emulate lossless Ethernet fabrics packet by packet.

    \b
    Examples:
      fabemu run scenario.toml
      fabemu run scenario.toml --set switch.ecn.kmin=200KB --seed 7 -o out
      fabemu check scenario.toml
    """


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run the command line and exit the process.

    Parameters
    ----------
    arguments
        Instead of those of the process.
    """
    code = EXIT_FINE
    _start_lightly()
    open_streams()
    try:
        code = _guarded(arguments)
        sys.stdout.flush()
    except OSError as error:
        code = _output_failed(error)
    sys.exit(code)


def _start_lightly() -> None:
    """Spare a short command what only long ones can gain from."""
    # Imports make some hundred thousand objects and hardly any garbage: looking for it again and again finds none.
    gc.set_threshold(200_000, 30, 30)
    # Nor does looking through all of them when the process ends; its memory goes back as a whole.
    atexit.register(gc.freeze)
    # Plugins of pydantic are for the programs that bring them; looking for them reads the metadata of every package.
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")
    # NumPy's threads for products of matrices wait by spinning, and there are no such products.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    # Arrow's own allocator takes pages of 2 MB where a column is compressed into some ten kB, the system's takes less.
    os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")
    if resource.getrlimit(resource.RLIMIT_AS)[0] != resource.RLIM_INFINITY:
        from fabemu.cost.shortage import frugal_environment

        for name, value in frugal_environment().items():
            os.environ.setdefault(name, value)


def _guarded(arguments: Sequence[str] | None) -> int:
    """Run, and turn every error into a line on stderr and an exit code."""
    from fabemu.errors import EngineFault, FabemuError, MachineError

    typed: list[click.Command] = []
    try:
        result = command.main(
            args=list(arguments) if arguments is not None else None,
            prog_name="fabemu",
            standalone_mode=False,
            obj=typed,
        )
        return result if isinstance(result, int) else EXIT_FINE
    except click.ClickException as error:
        error.show()
        return EXIT_INPUT
    except (click.Abort, KeyboardInterrupt):
        return _say("interrupted", EXIT_INTERRUPTED)
    except Terminated as ended:
        return _say("terminated" if ended.exit_code == EXIT_TERMINATED else "hung up", ended.exit_code)
    except EngineFault as error:
        return _say(f"fault in fabemu: {error}", EXIT_FAULT)
    except MachineError as error:
        return _say(error.told(_at_hand(typed)), EXIT_MACHINE)
    except FabemuError as error:
        return _say(str(error), EXIT_INPUT)
    except CutOff:
        return EXIT_CUT_OFF
    except OSError as error:
        return _output_failed(error, typed)
    except Exception as error:
        lack = _shortage(error, typed)
        if lack is not None:
            return _say(lack, EXIT_MACHINE)
        if os.environ.get("FABEMU_TRACEBACK"):
            raise
        text = f"fault in fabemu: {type(error).__name__}: {error}; FABEMU_TRACEBACK=1 shows where"
        return _say(text, EXIT_FAULT)


def _at_hand(typed: Sequence[click.Command]) -> AtHand:
    """What the user can do, by the subcommand that was typed, if any."""
    from fabemu.errors import AtHand

    parameters = [parameter for found in typed for parameter in found.params]
    names = {parameter.name for parameter in parameters if isinstance(parameter, click.Argument)}
    return AtHand(
        frozenset(text for parameter in parameters for text in parameter.opts if text.startswith("--")),
        "scenario" if "scenario" in names else "run" if names & {"run", "runs"} else "other",
    )


def _shortage(error: Exception, typed: Sequence[click.Command]) -> str | None:
    """What the machine ran out of, if that is what the error is about."""
    try:
        from fabemu.cost.shortage import shortage

        lack = shortage(error)
        return None if lack is None else lack.error().told(_at_hand(typed))
    except MemoryError:  # there is not even enough to say more
        return "out of memory"


class Terminated(BaseException):
    """SIGTERM or SIGHUP came before the run had begun, or SIGTERM a second time; no failure, as KeyboardInterrupt."""

    def __init__(self, exit_code: int) -> None:
        """Take the exit code of the signal."""
        super().__init__(exit_code)
        self.exit_code = exit_code


def _say(message: str, code: int) -> int:
    # An error of several lines, one per problem, gets one prefix per line.
    for line in message.splitlines() or [""]:
        talk(f"error: {line}")
    return code


def talk(line: str) -> None:
    """Write a line to stderr."""
    click.echo(line, err=True)


def _output_failed(error: OSError, typed: Sequence[click.Command] = ()) -> int:
    """Standard output, or the machine, gave up."""
    discard_output()
    lack = _shortage(error, typed)
    if lack is not None:
        return _say(lack, EXIT_MACHINE)
    if error.filename and error.errno in _WRONG_PATHS:
        return _say(_path_text(os.fsdecode(error.filename), error), EXIT_INPUT)
    where = f"{error.filename}: " if error.filename else "standard output: "
    return _say(f"{where}{error.strerror or error}", EXIT_MACHINE)


_WRONG_PATHS = (errno.ENAMETOOLONG, errno.ELOOP, errno.ENOTDIR, errno.EISDIR, errno.EACCES)
_NAME_BYTES_MAX, _PATH_BYTES_MAX = 255, 4095


def _path_text(path: str, error: OSError) -> str:
    """What is wrong with a path that the user gave."""
    if error.errno != errno.ENAMETOOLONG:
        return f"{path}: {error.strerror}; give another path"
    longest = max(path.split(os.sep), key=lambda name: len(os.fsencode(name)))
    size, what, most = len(os.fsencode(longest)), f"the name {_start(longest)}", _NAME_BYTES_MAX
    if size <= most:
        size, what, most = len(os.fsencode(path)), f"the path {_start(path)}", _PATH_BYTES_MAX
    return f"{what} is too long: it has {size:,} bytes, and {most:,} are allowed; give a shorter one"


def _start(text: str) -> str:
    return text if len(text) <= 60 else f"{text[:60]}..."
