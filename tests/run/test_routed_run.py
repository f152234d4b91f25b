"""Documents with characters of newer tables alone get the reference's ids, and are counted."""

from __future__ import annotations

import json

import numpy as np
import pyarrow as pa
import pytest
from tokenizers import Tokenizer as Library
from tokenizers.models import BPE
from tokenizers.pre_tokenizers import ByteLevel

from tokmill.dataset.plan_file import plan_fingerprint
from tokmill.engines.characters import RARE, CharacterSet
from tokmill.engines.engine import is_installed, load_engine
from tokmill.errors import StateError
from tokmill.executors.run import run
from tokmill.settings.schema import TokenizerSettings
from tokmill.tokenizer.tokenizer import load_tokenizer

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


def test_documents_with_characters_that_were_not_compared_get_the_references_ids(
    configure, write_rows, quotes_dir, silent, tmp_path, monkeypatch
):
    monkeypatch.setenv("TOKMILL_CACHE_DIR", str(tmp_path / "cache"))
    # gigatoken errs after a letter of newer tables; U+1D518 is encoded alike, but not compared.
    texts = (
        ["it's all common " * 99] * 9
        + ["x \U000323b0's y"]
        + ["the 猫's " * 99] * 9
        + ["\U0001d518"]
    )
    rows = write_rows(tmp_path / "rare.jsonl", [{"text": text} for text in texts])
    given = {"path": str(quotes_dir), "eos_token": "<eos>"}
    manifests = [
        run(configure(tmp_path / engine, rows, engine=engine, **given), silent)
        for engine in ("reference", "gigatoken")
    ]
    assert ids_of(tmp_path / "gigatoken") == ids_of(tmp_path / "reference")
    scan = manifests[1]["engine"]["scan"]
    assert (scan["n_characters"], CharacterSet.from_json(scan["uncompared"])) == (67_584, RARE)
    assert 0x323B0 not in CharacterSet.from_json(scan["differs"])
    assert manifests[1]["totals"]["checks"]["routed"] == 2
    engine, reference = (
        load_engine(
            name, load_tokenizer(TokenizerSettings(**given)), control_in_text="text", n_threads=1
        )
        for name in ("gigatoken", "reference")
    )
    text = pa.array(texts[9:10], pa.large_string())
    assert engine.encode(text).ids.tolist() != reference.encode(text).ids.tolist()


def test_their_number_depends_on_nothing_but_the_corpus(config_of, silent, tmp_path):
    settings = [{}, {"threads": 2, "batch_bytes": 100}, {"workers": 2, "part_bytes": 300}]
    for i, changes in enumerate(settings):
        totals = run(config_of(f"{i}", engine="gigatoken", **changes), silent)["totals"]
        assert totals["checks"]["routed"] == len(NEW)
        assert ids_of(tmp_path / f"{i}") == ids_of(tmp_path / "0")


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
