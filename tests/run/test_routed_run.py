"""Documents with characters of newer tables alone get the reference's ids, and are counted."""

from __future__ import annotations

import json

import numpy as np
import pytest
from tokenizers import Regex
from tokenizers import Tokenizer as Library
from tokenizers.models import BPE
from tokenizers.pre_tokenizers import ByteLevel, Digits, Punctuation, Sequence, Split

from tokmill.dataset.plan_file import plan_fingerprint
from tokmill.engines.engine import is_installed
from tokmill.engines.routing import COMMON, RARE, CharacterSet
from tokmill.errors import StateError
from tokmill.executors.run import run

pytestmark = pytest.mark.skipif(not is_installed("gigatoken"), reason="gigatoken has no wheel here")

NEW = "\U000323b0\U0002b73a\u088f\u0c5c\u0cdc\U00016ea0"
TEXTS = [f"the cat {character}'s and {i}" for i, character in enumerate(NEW)] + ["it's", "猫's"] * 9


@pytest.fixture(scope="module")
def quotes_dir(tmp_path_factory):
    """A tokenizer with a token for `'s`, as gpt2 has."""
    vocab = {token: id_ for id_, token in enumerate([*sorted(ByteLevel.alphabet()), "'s", "<eos>"])}
    library = Library(BPE(vocab, [("'", "s")]))
    library.pre_tokenizer = ByteLevel(add_prefix_space=False)
    directory = tmp_path_factory.mktemp("quotes")
    library.save(str(directory / "tokenizer.json"))
    return directory


@pytest.fixture
def config_of(configure, write_rows, quotes_dir, tmp_path):
    def make(name: str, **settings):
        rows = write_rows(tmp_path / "a.jsonl", [{"text": text} for text in TEXTS])
        given = {"path": str(quotes_dir), "eos_token": "<eos>", **settings}
        return configure(tmp_path / name, rows, **given)

    return make


def ids_of(directory) -> list[int]:
    return np.concatenate([np.fromfile(p, "<u2") for p in sorted(directory.glob("*.bin"))]).tolist()


def test_they_are_encoded_by_the_reference_and_counted(config_of, silent, tmp_path):
    run(config_of("reference", engine="reference"), silent)
    manifest = run(config_of("fast", engine="gigatoken"), silent)
    assert ids_of(tmp_path / "fast") == ids_of(tmp_path / "reference")
    assert manifest["totals"]["checks"]["routed"] == len(NEW)
    differs = manifest["engine"]["scan"]["differs"]
    assert all(any(a <= ord(c) <= b for a, b in differs) for c in NEW)
    assert manifest["engine"]["scan"]["n_characters"] == 1_112_064


@pytest.mark.skipif(not is_installed("fastokens"), reason="fastokens has no wheel here")
def test_documents_with_characters_that_were_not_compared_get_the_references_ids(
    configure, write_rows, quotes_dir, silent, tmp_path, monkeypatch
):
    monkeypatch.setenv("TOKMILL_CACHE_DIR", str(tmp_path / "cache"))
    library = Library.from_file(str(quotes_dir / "tokenizer.json"))
    no_common_pattern = Split(Regex(r"'s|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{2}|\s+|."), "isolated")
    own = [no_common_pattern, ByteLevel(add_prefix_space=False, use_regex=False)]
    library.pre_tokenizer = Sequence(own)
    library.save(str(tmp_path / "tokenizer.json"))
    texts = ["it's all common " * 99] * 9 + ["x \U000323b0's y", "the 猫's", "\U0001d518"]
    rows = write_rows(tmp_path / "rare.jsonl", [{"text": text} for text in texts])
    given = {"path": str(tmp_path), "eos_token": "<eos>"}
    for name, engine in (
        ("reference", "reference"),
        ("first", "fastokens"),
        ("later", "fastokens"),
    ):
        manifest = run(configure(tmp_path / name, rows, engine=engine, **given), silent)
        assert ids_of(tmp_path / name) == ids_of(tmp_path / "reference")
        if name != "reference":
            scan = manifest["engine"]["scan"]
            compared = scan["n_characters"], CharacterSet.from_json(scan["uncompared"])
            assert compared == (len(COMMON), RARE)
            assert manifest["engine"]["scan_kept"] == (name == "later")
            assert manifest["totals"]["checks"]["routed"] == 2


def test_a_plan_fixes_the_characters_and_the_versions(config_of, silent, tmp_path):
    config = config_of("out", engine="gigatoken")
    run(config, silent)
    path = tmp_path / "out" / "plan.json"
    plan = json.loads(path.read_bytes())
    assert plan["engine"]["scan"]["differs"]
    (tmp_path / "out" / "manifest.json").unlink()

    def changed(**engine):
        again = {**plan, "engine": {**plan["engine"], **engine}}
        again["fingerprint"] = plan_fingerprint(again)
        path.chmod(0o644)
        path.write_text(json.dumps(again))

    changed(version="0.0.1")
    with pytest.raises(StateError, match=r"began with gigatoken 0\.0\.1, installed is ") as caught:
        run(config, silent)
    assert "\n" not in str(caught.value)
    changed(reference="0.0.2")
    with pytest.raises(StateError, match=r"began with reference 0\.0\.2, installed is "):
        run(config, silent)


# Texts on which an engine raises

SPACES = " " * 1_000_000
UNSPLIT = [f"the cat, {i}" for i in range(40)] + ["a" + SPACES, "the hat"]


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


@pytest.mark.skipif(not is_installed("fastokens"), reason="fastokens has no wheel here")
def test_texts_that_an_engine_cannot_split_get_the_references_ids_and_are_counted(
    configure, write_rows, falcon_dir, silent, tmp_path
):
    rows = write_rows(tmp_path / "a.jsonl", [{"text": text} for text in UNSPLIT])
    given = {"path": str(falcon_dir), "eos_token": "<eos>"}
    run(configure(tmp_path / "reference", rows, engine="reference", **given), silent)
    given |= {"threads": 2, "block_bytes": 1000}
    manifest = run(configure(tmp_path / "fast", rows, engine="fastokens", **given), silent)
    assert manifest["engine"]["name"] == "fastokens"
    assert manifest["totals"]["checks"]["routed"] == 1
    assert ids_of(tmp_path / "fast") == ids_of(tmp_path / "reference")
