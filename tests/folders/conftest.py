"""The command line, as the tests of `tests/cli` run it."""

from tests.cli.conftest import pretrain, sft, tokmill

__all__ = ["pretrain", "sft", "tokmill"]
