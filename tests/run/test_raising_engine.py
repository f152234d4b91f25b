"""A text on which an engine raises gets the reference's ids, and is counted as routed."""

from __future__ import annotations

import numpy as np
import pytest
from tokenizers import Regex
from tokenizers import Tokenizer as Library
from tokenizers.models import BPE
from tokenizers.pre_tokenizers import ByteLevel, Digits, Punctuation, Sequence, Split

from tokmill.engines.engine import is_installed
from tokmill.executors.run import run

pytestmark = pytest.mark.skipif(not is_installed("fastokens"), reason="fastokens has no wheel here")

SPACES = " " * 1_000_000
TEXTS = [f"the cat, {i}" for i in range(40)] + ["a" + SPACES, "the hat"]


@pytest.fixture(scope="module")
def falcon_dir(tmp_path_factory):
    """A tokenizer that splits as Falcon's does: fastokens raises on a million spaces."""
    vocab = {token: id_ for id_, token in enumerate([*sorted(ByteLevel.alphabet()), "<eos>"])}
    library = Library(BPE(vocab, []))
    library.pre_tokenizer = Sequence(
        [
            Punctuation("contiguous"),
            ByteLevel(add_prefix_space=False),
            Digits(individual_digits=False),
            Split(Regex("[0-9][0-9][0-9]"), "isolated"),
        ]
    )
    directory = tmp_path_factory.mktemp("falcon")
    library.save(str(directory / "tokenizer.json"))
    return directory


def ids_of(directory) -> list[int]:
    return np.concatenate([np.fromfile(p, "<u2") for p in sorted(directory.glob("*.bin"))]).tolist()


def test_texts_that_an_engine_cannot_split_get_the_references_ids_and_are_counted(
    configure, write_rows, falcon_dir, silent, tmp_path
):
    rows = write_rows(tmp_path / "a.jsonl", [{"text": text} for text in TEXTS])
    given = {"path": str(falcon_dir), "eos_token": "<eos>"}
    run(configure(tmp_path / "reference", rows, engine="reference", **given), silent)
    given |= {"threads": 2, "block_bytes": 1000}
    manifest = run(configure(tmp_path / "fast", rows, engine="fastokens", **given), silent)
    assert manifest["engine"]["name"] == "fastokens"
    assert manifest["totals"]["checks"]["routed"] == 1
    assert ids_of(tmp_path / "fast") == ids_of(tmp_path / "reference")
