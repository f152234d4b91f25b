"""What the oracles of SFT are given: the sample chats as tokens and masks, in several shards."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from tokmill.dataset.documents import Documents
from tokmill.dataset.reader import Shard
from tokmill.run.finish import run
from tokmill.settings.sft import SftSettings

SAMPLES = Path(__file__).parents[2] / "data_samples"


def import_or_skip(*modules: str) -> None:
    """Import modules in the worker that runs their tests alone: that takes seconds."""
    with warnings.catch_warnings():  # of optional packages that are not here
        warnings.simplefilter("ignore")
        for module in modules:
            reason = "the oracle is not installed: make oracles"
            pytest.importorskip(module, reason=reason, exc_type=ImportError)


@dataclass(frozen=True)
class Chats:
    """A dataset of SFT: its directory, its manifest, the shards of its train split."""

    directory: Path
    manifest: dict[str, Any]
    shards: list[Shard]

    @property
    def eos_id(self) -> int:
        return int(self.manifest["tokenizer"]["eos"]["id"])

    @property
    def dtype(self) -> npt.DTypeLike:
        return np.dtype(self.manifest["dtype"]).type

    def files(self, ending: str) -> list[Path]:
        """Return the files of the shards that have an ending."""
        return [self.directory / f"{shard.name}.{ending}" for shard in self.shards]

    def samples(self) -> list[tuple[list[int], list[int]]]:
        """Return the ids and labels of every sample, -100 where a token is not trained."""
        found = []
        for shard in self.shards:
            ids = shard.tokens[:].astype(np.int64)
            labels = np.where(shard.mask[:], ids, -100)
            spans = map(shard.span, range(len(shard.lengths)))
            found += [(ids[span].tolist(), labels[span].tolist()) for span in spans]
        return found


@pytest.fixture(scope="session")
def make_chats(
    tmp_path_factory: pytest.TempPathFactory, configure: Callable[..., Any], silent: Any
) -> Callable[..., Chats]:
    """Make the dataset of `data_samples/sft/chats.jsonl`; settings may be others."""

    def make(sft: SftSettings | None = None, **settings: Any) -> Chats:
        directory = tmp_path_factory.mktemp("chats") / "out"
        chosen = {"path": str(SAMPLES / "tokenizer"), "shard_tokens": 20_000} | settings
        config = configure(
            directory, SAMPLES / "sft" / "chats.jsonl", sft=sft or SftSettings(), **chosen
        )
        manifest = run(config, silent)
        return Chats(
            directory, manifest.plain, list(Documents(directory, manifest, "train").shards())
        )

    return make
