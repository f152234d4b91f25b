"""The engine of a run, and what is weighed and read for the choice."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tokenizers import Regex
from tokenizers import Tokenizer as Library
from tokenizers.models import BPE
from tokenizers.pre_tokenizers import ByteLevel, Sequence, Split

import tokmill.engines.choose as choosing
from tokmill.dataset.plan_file import plan_fingerprint
from tokmill.engines.engine import FAST_ENGINES, REFERENCE, is_installed
from tokmill.engines.gigatoken import Gigatoken
from tokmill.engines.routing import COMMON, RARE, CharacterSet
from tokmill.errors import StateError
from tokmill.run.finish import run
from tokmill.run.prepare import choose_run_engine, prepare
from tokmill.values import TokenBatch

ROWS = [{"text": f"hel hello {i} the cat " * (i % 4 + 1)} for i in range(60)]

needs_fast_engines = pytest.mark.skipif(
    not all(is_installed(name) for name in FAST_ENGINES), reason="an engine has no wheel here"
)


@pytest.fixture
def any_size(monkeypatch) -> None:
    for name in ("LEAST_BYTES", "TIMED_FROM_BYTES"):
        monkeypatch.setattr(choosing, name, 0)


@pytest.fixture
def wrong_gigatoken(monkeypatch) -> None:
    """An engine whose ids are one too high in this process, which chooses."""
    encode = Gigatoken.encode

    def shifted(self, text):
        batch = encode(self, text)
        return TokenBatch(batch.ids + 1, batch.offsets)

    monkeypatch.setattr(Gigatoken, "encode", shifted)


def lines_of(texts: list[str]) -> bytes:
    return "".join(json.dumps({"text": text}) + "\n" for text in texts).encode()


def dataset(directory: Path) -> dict[str, bytes]:
    """The files that hold tokens."""
    patterns = ("*.bin", "*.idx", "*.mask")
    return {path.name: path.read_bytes() for one in patterns for path in directory.glob(one)}


@needs_fast_engines
@pytest.mark.parametrize(
    ("name", "write"),
    [
        ("a.parquet", lambda path, texts: pq.write_table(pa.table({"text": texts}), path)),
        ("a.jsonl.gz", lambda path, texts: path.write_bytes(gzip.compress(lines_of(texts)))),
        ("a.jsonl", lambda path, texts: path.write_bytes(lines_of(texts))),
    ],
)
def test_an_input_is_weighed_by_its_text_where_it_is_stored_smaller(
    configure, tmp_path, name, write
):
    names = []
    for n_texts in (1000, 2000):  # 6 and 12 MB
        path = tmp_path / f"{n_texts}-{name}"
        write(path, [f"{i} " + "the cat sat " * 500 for i in range(n_texts)])
        prepared = prepare(configure(tmp_path / "out", path, engine="auto"))
        names.append(choose_run_engine(prepared).name)
    assert names[0] == REFERENCE
    assert names[1] in FAST_ENGINES


@needs_fast_engines
@pytest.mark.usefixtures("any_size", "wrong_gigatoken")
@pytest.mark.parametrize("workers", [1, 2])
def test_a_wrong_engine_is_left_out_before_anything_is_written(
    configure, write_rows, listener, tmp_path, workers
):
    source = write_rows(tmp_path / "in.jsonl", ROWS)
    settings = {"part_bytes": 900, "block_bytes": 300}
    run(configure(tmp_path / "reference", source, engine=REFERENCE, **settings), listener)
    given = settings | {"engine": "auto", "workers": workers}
    manifest = run(configure(tmp_path / "out", source, **given), listener).plain
    assert manifest["engine"]["name"] == "fastokens"
    assert "its ids differ" in manifest["engine"]["refused"]["gigatoken"]
    assert dataset(tmp_path / "out") == dataset(tmp_path / "reference")


# Documents that the reference encodes


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
    manifest = run(config_of("fast", engine="gigatoken"), silent).plain
    assert ids_of(tmp_path / "fast") == ids_of(tmp_path / "reference")
    assert manifest["totals"]["checks"]["routed"] == len(NEW)
    scan = manifest["engine"]["scan"]
    ranges = scan["differs"] + scan["uncompared"]
    assert all(any(a <= ord(c) <= b for a, b in ranges) for c in NEW)


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
        manifest = run(configure(tmp_path / name, rows, engine=engine, **given), silent).plain
        assert ids_of(tmp_path / name) == ids_of(tmp_path / "reference")
        if name != "reference":
            scan = manifest["engine"]["scan"]
            compared = scan["n_characters"], CharacterSet.from_json(scan["uncompared"])
            assert compared == (len(COMMON), RARE)
            assert manifest["engine"]["scan_kept"] == (name == "later")
            assert manifest["totals"]["checks"]["routed"] == 2


def test_a_plan_fixes_the_characters_and_the_version_of_the_reference(config_of, silent, tmp_path):
    config = config_of("out", engine="gigatoken")
    run(config, silent)
    path = tmp_path / "out" / "plan.json"
    plan = json.loads(path.read_bytes())
    assert plan["engine"]["scan"]["differs"]
    (tmp_path / "out" / "manifest.json").unlink()

    plan["engine"]["reference"] = "0.0.2"
    plan["fingerprint"] = plan_fingerprint(plan)
    path.chmod(0o644)
    path.write_text(json.dumps(plan))
    with pytest.raises(StateError, match=r"began with reference 0\.0\.2, installed is "):
        run(config, silent)
