"""How a process of our own begins and ends: the command line and its children.

pyarrow asks for pandas, which tokmill never uses, when it converts the first list or array, whoever
calls it. Where pandas is installed, its import takes 0.2 s and 40 MB of each such process.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import os
import sys

TYPE_CHECKING = False  # that of typing, whose import takes longer than all of this module
if TYPE_CHECKING:
    from types import FrameType

_PACKAGE = "pandas"
_OWN = "tokmill"
_BETWEEN = ("importlib", "_frozen_importlib", "pyarrow")
"""Packages whose Python code stands between an import and whoever leads to it."""


class _Refusal:
    """A finder that refuses pandas to tokmill's own modules, and leaves it to all others.

    Most of pyarrow is native, so the module that called it seems to import.
    """

    def find_spec(self, name: str, _path: object = None, _target: object = None) -> None:
        """Raise ModuleNotFoundError for pandas, if a module of tokmill leads to its import."""
        if name == _PACKAGE and _importer().partition(".")[0] == _OWN:
            raise ModuleNotFoundError(f"No module named {_PACKAGE!r}", name=_PACKAGE)


_refusal = _Refusal()


def begin_process() -> None:
    """Set what makes this process start sooner; for programs, not for libraries.

    Pandas is refused to tokmill's own modules.
    """
    # What is imported and loaded is no garbage: to look through it took a tenth of a small run.
    gc.set_threshold(100_000)
    # OpenBLAS, which nothing here calls, starts a thread for each core when numpy is imported. They
    # spin for 50 ms; each reserves 32 MiB, and where a limit leaves less, the process ends with 1.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    if _refusal not in sys.meta_path:
        sys.meta_path.insert(0, _refusal)


def end_process(status: int) -> None:
    """End the process without freeing what it holds, which takes 20 to 200 ms.

    Returns where code from outside has run: of its files, Python writes the rest at its own end. So
    does standard output that cannot be written, for Python's own end says why.
    """
    if _refusal not in sys.meta_path:
        return
    try:
        atexit._run_exitfuncs()
        sys.stdout.flush()
        sys.stderr.flush()
    except BaseException:
        return
    os._exit(status)


def expect_foreign_code() -> None:
    """Allow pandas again, before code from outside runs: it may hand a Series to pyarrow.

    pyarrow remembers that there is no pandas, until it has to make something of pandas.
    """
    if _refusal not in sys.meta_path:
        return
    sys.meta_path.remove(_refusal)
    if "pyarrow" in sys.modules:
        import pyarrow as pa

        with contextlib.suppress(ImportError):
            pa.nulls(0).to_pandas()


def _importer() -> str:
    """Return the name of the module that leads to an import, '' if there is none."""
    frame: FrameType | None = sys._getframe(2)
    while frame is not None:
        name = str(frame.f_globals.get("__name__", ""))
        if name.partition(".")[0] not in _BETWEEN:
            return name
        frame = frame.f_back
    return ""
