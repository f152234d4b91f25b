"""The `tokmill` command: verbs, errors as one line, exit codes."""

from __future__ import annotations

import errno
import importlib
import os
import resource
import sys
import traceback
from io import TextIOWrapper
from typing import NoReturn

import click
from click.shell_completion import add_completion_class, shell_complete

from tokmill.cli.completion import VARIABLE, Bash
from tokmill.cli.screen import (
    choose_log_format,
    log_option,
    show,
    show_error,
    show_labelled,
    show_styled,
)
from tokmill.errors import (
    EXIT_CLOSED_PIPE,
    EXIT_INTERNAL,
    EXIT_INTERRUPTED,
    StorageError,
    TokmillError,
    UnreadInputError,
    UsageError,
    WorkerError,
)
from tokmill.interrupts import Interrupt, answer_signals, ignore_signals
from tokmill.version import __version__
from tokmill.words import memory, printable, printable_lines

COMMANDS = {
    "pretrain": ("tokmill.cli.run:pretrain", "Turn records into token shards."),
    "sft": ("tokmill.cli.run:sft", "Turn conversations into token shards with loss masks."),
    "plan": ("tokmill.cli.plan", "Predict tokens, disk, time and memory of a run."),
    "run-part": ("tokmill.cli.run:run_part", "Work on one task's share of a plan."),
    "status": ("tokmill.cli.run:status", "Show which parts of a plan are done."),
    "finish": ("tokmill.cli.run:finish", "Finish a plan whose parts are done."),
    "pack": ("tokmill.cli.pack", "Pack the documents of a dataset into rows for pretraining."),
    "report": ("tokmill.cli.report", "Show the contents and memory needs of a dataset."),
    "memory": ("tokmill.cli.bill:memory_command", "Estimate GPU memory and host RAM of a model."),
    "verify": ("tokmill.cli.checks:verify", "Check a dataset against its manifest."),
    "stats": ("tokmill.cli.stats", "Show lengths, sources, duplicates and ids of a dataset."),
    "inspect": ("tokmill.cli.inspect", "Show documents of a dataset, decoded."),
    "audit": ("tokmill.cli.audit", "Find what a trainer would train by mistake."),
    "mix": (
        "tokmill.cli.mix:mix_command",
        "Merge, blend, shuffle and deduplicate finished datasets.",
    ),
    "export": (
        "tokmill.cli.trainers:export_dataset",
        "Write a dataset in the layout of another trainer.",
    ),
    "import": (
        "tokmill.cli.trainers:import_dataset",
        "Read the tokens of another trainer into a dataset.",
    ),
    "config": ("tokmill.cli.config", "Check a settings file, or print the schema of such files."),
    "doctor": ("tokmill.cli.checks:doctor", "Check this installation and machine."),
    "completion": ("tokmill.cli.completion", "Print the script for completion in a shell."),
}

EXIT_CODES = """\b
Exit codes:
  0    done
  1    verify found a mismatch; audit --fail-on a fault; doctor something essential that is broken
  2    an option, a setting or a path is wrong
  3    broken records: too many, or one with --on-error fail; input that breaks off; no document
  4    the tokenizer: it does not load, its eos is unknown, an id does not fit
  5    storage: no space, no permission, an unreadable file
  6    the output directory holds another run, is in use, or is of a newer format
  7    memory ran out, or a worker process died
  70   a bug in tokmill
  130  interrupted, by Ctrl-C or SIGTERM
  141  standard output was closed (for example by `head`)"""

MAX_MESSAGE = 900

_OF_THE_SYSTEM = {
    errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EMFILE, errno.ENFILE, errno.EROFS, errno.EACCES,
    errno.EPERM, errno.ESTALE, errno.ENAMETOOLONG, errno.ELOOP,
}  # fmt: skip
"""Errors of a file, wherever one comes from, that no code of tokmill causes."""

_NO_TEMPORARY = "No usable temporary directory"

_OUT_OF_MEMORY = (
    "cannot allocate memory",
    "failed to map segment",
    "can't start new thread",
    "resource temporarily unavailable",
)
"""What the loader of libraries, Arrow, Rust and `threading` say: their errors have no number."""


class LazyGroup(click.Group):
    """Imports a command when it is run; until then it is its name and a line of help."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the verbs in the order of a user's work."""
        return list(self.commands)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the verb, and import its command."""
        if args[0] not in COMMANDS and not args[0].startswith("-") and not ctx.resilient_parsing:
            from tokmill.extensions import nearest

            near = nearest(args[0], list(COMMANDS)) or f": expected one of {', '.join(COMMANDS)}"
            ctx.fail(f"no such command {args[0]!r}{near}")
        name, command, rest = super().resolve_command(ctx, args)
        return name, None if command is None else load_command(args[0]), rest


def load_command(verb: str) -> click.Command:
    """Import the command of a verb."""
    module, _, name = COMMANDS[verb][0].partition(":")
    command: click.Command = getattr(importlib.import_module(module), name or "command")
    return command


@click.group(
    cls=LazyGroup,
    commands={name: click.Command(name, short_help=text) for name, (_, text) in COMMANDS.items()},
    epilog=EXIT_CODES,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(__version__, "-V", "--version", prog_name="tokmill")
@click.option("--no-color", is_flag=True, help="Print without colour, as NO_COLOR does.")
@log_option
@click.pass_context
def cli(ctx: click.Context, no_color: bool) -> None:
    """Turn a corpus into token shards that trainers memory-map.

    \b
    Examples:
      tokmill plan corpus/*.jsonl --tokenizer gpt2/ --output out
      tokmill pretrain corpus/*.jsonl --tokenizer gpt2/ --output out
      tokmill sft chats.jsonl --tokenizer qwen2.5/ --output out
      tokmill report out --model llama-3.2-1b --gpu 'RTX 4090'
      tokmill memory --model llama-3-8b --gpu H100
      tokmill verify out
      tokmill inspect out --sample 3
    """
    if no_color:
        os.environ["NO_COLOR"] = "1"
    if os.environ.get("NO_COLOR"):
        ctx.color = False


def main() -> None:
    """Run the command line and exit with a documented code."""
    if sys.platform == "win32":
        sys.exit(
            "error: tokmill needs POSIX file locks and atomic renames over open files, which "
            "Windows lacks: run it in WSL"
        )
    answer_signals()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):  # a terminal of Latin-1 has no 猫: it shows \u732b
            stream.reconfigure(errors="backslashreplace")
    try:
        code = _run()
    except KeyboardInterrupt:  # while an error was printed
        code = _interrupted()
    ignore_signals()
    sys.exit(code)


def _run() -> int:
    """Run the command line, print its error if it ends with one, and return its exit code.

    `click.Group.main` would answer Ctrl-C with an empty line, and a closed pipe with 1, the code of
    a mismatch.
    """
    choose_log_format(sys.argv[1:])
    try:
        if asked := os.environ.get(VARIABLE):
            add_completion_class(Bash)
            return shell_complete(cli, {}, "tokmill", VARIABLE, asked)
        with cli.make_context("tokmill", sys.argv[1:]) as context:
            cli.invoke(context)
        return 0
    except click.exceptions.Exit as error:
        return error.exit_code
    except SystemExit as error:
        return error.code if isinstance(error.code, int) else 0
    except click.ClickException as error:
        return _refuse_words(error)
    except BrokenPipeError:
        _drop_output()
        return EXIT_CLOSED_PIPE
    except BaseException as error:  # a panic of native code is no Exception
        return _answer(error)


def _answer(error: BaseException) -> int:
    """Print what ended a command, and return its exit code; where memory ran out, exit."""
    if isinstance(error, KeyboardInterrupt) or Interrupt.is_asked:
        return _interrupted(str(error) if isinstance(error, KeyboardInterrupt) else "")
    if isinstance(error, TokmillError):
        return _told(error)
    if is_out_of_memory(error):
        _end_without_memory()
    if isinstance(error, FileNotFoundError) and _NO_TEMPORARY in str(error):  # of `tempfile`
        return _fail(
            "no directory for temporary files can be written: name one in TMPDIR",
            StorageError.exit_code,
        )
    if isinstance(error, OSError) and error.errno in _OF_THE_SYSTEM:
        is_full = error.errno == errno.ENOSPC
        place = error.filename or ("standard output" if is_full else "")
        if is_full:
            _drop_output()
        if place:
            return _fail(f"{place}: {str(error.strerror).lower()}", StorageError.exit_code)
    show_styled(printable_lines("".join(traceback.format_exception(error)).rstrip()), err=True)
    return _fail("this is a bug in tokmill; please report the lines above", EXIT_INTERNAL)


def _told(error: TokmillError) -> int:
    """Print an error that says what is wrong, with what helps beside it; return its exit code."""
    if isinstance(error, UnreadInputError):
        # The user has to look at every file that breaks off, however many.
        is_listed = len(error.files) > 1 or len(str(error)) > MAX_MESSAGE
        for line in error.files if is_listed else ():
            show_labelled("unread:", line, colour="yellow", err=True)
    if isinstance(error, UsageError) and len(sys.argv) == len(("tokmill", "verb")):
        with cli.make_context("tokmill", [sys.argv[1], "--"]) as context:
            command = click.Context(load_command(sys.argv[1]), context, sys.argv[1])
            _show_usage(command)
    from tokmill.settings.names import in_options  # 25 ms that --help does without

    return _fail(in_options(error, sys.argv[1:]), error.exit_code)


def _end_without_memory() -> NoReturn:
    """Print that memory ran out, and end the process at once."""
    limit = _address_space()
    where = "" if limit is None else f" (ulimit -v allows {memory(limit)})"
    _fail(
        f"out of memory{where}: give this process more memory, or use fewer --workers and "
        "--threads, and run the same command again; a run keeps the parts that are done",
        WorkerError.exit_code,
    )
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(WorkerError.exit_code)  # libraries that lacked memory may crash at their end


def is_out_of_memory(error: BaseException | None) -> bool:
    """Return whether an error, or one that led to it, means that memory ran out."""
    # Where its memory ends, Python sometimes loses the error: "error return without exception set".
    is_limited = _address_space() is not None
    known = (MemoryError, SystemError) if is_limited else (MemoryError,)
    while error is not None:
        is_known = isinstance(error, known) or getattr(error, "errno", 0) == errno.ENOMEM
        if is_known or any(words in str(error).lower() for words in _OUT_OF_MEMORY):
            return True
        error = error.__cause__ or error.__context__
    return False


def _address_space() -> int | None:
    """Return the bytes that this process may map; None: no limit."""
    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    return None if limit == resource.RLIM_INFINITY else limit


def _interrupted(message: str = "") -> int:
    ignore_signals()  # the line is printed once
    return _fail(message or Interrupt.line, EXIT_INTERRUPTED)


def _fail(message: str, code: int) -> int:
    """Print one line on stderr; return the code."""
    line = printable(message)
    if len(line) > MAX_MESSAGE:
        line = line[: MAX_MESSAGE - 1] + "…"
    show_error(line, code)
    return code


def _refuse_words(error: click.ClickException) -> int:
    """Print which words of the command line are wrong, or the help if there are none."""
    if isinstance(error, click.exceptions.NoArgsIsHelpError):
        show_styled(error.format_message(), err=True)
        return error.exit_code
    if isinstance(error, click.UsageError) and error.ctx is not None:
        _show_usage(error.ctx)
    return _fail(error.format_message().replace("\n\t", " "), error.exit_code)


def _show_usage(context: click.Context) -> None:
    """Print how a command is called, and where its help is."""
    show_styled(printable_lines(context.get_usage()), err=True)
    show(f"Try '{context.command_path} --help' for help.", err=True)


def _drop_output() -> None:
    """Discard the rest of standard output, so that Python's flush at exit cannot fail."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
