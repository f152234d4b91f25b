"""The command line in this process, as the tests of the command line have it."""

from tests.cli.conftest import tokmill

__all__ = ["tokmill"]
