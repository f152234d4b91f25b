"""Why the `tokenizers` library refuses a tokenizer."""

from __future__ import annotations

from tokmill.errors import TokenizerError


def is_panic(error: BaseException) -> bool:
    """Return whether an error is a panic of native code: a BaseException without a public type."""
    return type(error).__name__ == "PanicException"


def refusal(error: BaseException) -> str:
    """Return the reason that the `tokenizers` library gives, on one line.

    Raises:
        BaseException: the error itself, if it is neither an Exception nor a panic.
    """
    if not isinstance(error, Exception) and not is_panic(error):
        raise error
    reason = " ".join(str(error).split())
    return reason.removeprefix("Cannot instantiate Tokenizer from buffer: ")


def refused(where: str, reason: str) -> TokenizerError:
    """Return the error for a file that the library refuses."""
    return TokenizerError(f"{where}: the tokenizers library refuses it: {reason}")
