"""The error tree. Each branch has an exit code; each message is one line for the person reading.

A message says where, what was expected, what was found and what to do; lower case, no full stop.
Errors cross process boundaries, so they carry a message string and nothing else.

    TokmillError              70  a bug, unless it is one of those below
    ├── VerifyError            1
    ├── UsageError             2
    ├── RecordError            3
    │   └── UnreadInputError   3
    ├── TokenizerError         4
    │   └── ParityError        4
    ├── StorageError           5
    ├── StateError             6
    └── WorkerError            7
        └── TemplateLimitError 7
"""

from __future__ import annotations


class TokmillError(Exception):
    """Root of everything that tokmill raises on purpose."""

    exit_code = 70

    def __init__(self, message: str = "") -> None:
        # torch raises an error of a DataLoader's worker again as its class, called with "Caught …"
        # and the whole traceback, which ends with the name of the class and our message.
        if message.startswith("Caught "):
            name = f"{type(self).__module__}.{type(self).__qualname__}"
            message = message.rpartition(f"\n{name}: ")[2].removesuffix("\n")
        super().__init__(message)


class VerifyError(TokmillError):
    """The files of a dataset are not what its manifest says; `problems` lists what was found."""

    exit_code = 1

    def __init__(self, message: str, problems: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.problems = problems


class UsageError(TokmillError):
    """An option, a configuration value or a path is wrong.

    `setting`: the key of the setting whose value is wrong, such as `output.val_fraction`. The
    message does not repeat it: the command line, a file, a variable and Python each write it in
    their own way.
    """

    exit_code = 2

    def __init__(self, message: str = "", setting: str = "") -> None:
        super().__init__(message)
        self.setting = setting

    def __str__(self) -> str:
        message = super().__str__()
        return f"{self.setting}: {message}" if self.setting else message


class RecordError(TokmillError):
    """A record is broken and the settings say to stop, or too many records are."""

    exit_code = 3


class UnreadInputError(RecordError):
    """Input could not be read to its end; `files` says where and why, a line for each break."""

    def __init__(self, message: str, files: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.files = files


class TokenizerError(TokmillError):
    """A tokenizer does not load, its eos is unknown, or an id does not fit the dtype."""

    exit_code = 4


class ParityError(TokenizerError):
    """An engine gave other ids than the reference."""


class StorageError(TokmillError):
    """A file cannot be read or written: no space, no permission, not there any more."""

    exit_code = 5


class StateError(TokmillError):
    """The output directory holds another run, is in use, or is of a newer format."""

    exit_code = 6


class WorkerError(TokmillError):
    """A worker process died; the command line ends with its code too where memory ran out."""

    exit_code = 7


class TemplateLimitError(WorkerError):
    """A chat template took more time or memory than it may; `row`: of the record in its block."""

    def __init__(self, message: str = "", row: int | None = None) -> None:
        super().__init__(message)
        self.row = row


EXIT_INTERRUPTED = 130
EXIT_CLOSED_PIPE = 141
EXIT_INTERNAL = 70
