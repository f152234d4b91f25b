"""What commands over a finished dataset share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tokmill.errors import UsageError
from tokmill.settings.schema import TokenizerSettings

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tokmill.tokenizer.tokenizer import Tokenizer


def tokenizer_of(manifest: dict[str, Any], moved: str) -> Tokenizer:
    """Load the tokenizer of a dataset, from `moved` where that is not ''.

    Raises:
        UsageError: it is not there, or not the same.
    """
    from tokmill.tokenizer.tokenizer import load_tokenizer

    settings = manifest["config"]["tokenizer"]
    loaded = load_tokenizer(
        TokenizerSettings(
            path=moved or settings["path"],
            pattern=settings["pattern"],
            eos_token=str(manifest["tokenizer"]["eos"]["id"]),
        )
    )
    if loaded.sha256 != manifest["tokenizer"]["sha256"]:
        raise UsageError(
            f"{moved or settings['path']}: not the tokenizer of this dataset (sha256 differs): "
            "name the right one with --tokenizer"
        )
    return loaded


def spread(total: int, wanted: int) -> Sequence[int]:
    """Give `wanted` numbers below `total`, or all, evenly spread."""
    wanted = min(wanted, total)
    return [i * total // wanted for i in range(wanted)]
