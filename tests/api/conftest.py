"""The command line, as the tests of `tests/cli` run it."""

from tests.cli.conftest import tokmill as command

__all__ = ["command"]
