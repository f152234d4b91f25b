"""Text that the tokenizer cannot write is counted, said, and above a share an error."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

from tests.cli.conftest import manifest

ENGLISH = ["the quick brown fox jumps over the lazy dog. " * 3, "hello world hello there"]
HAN = "猫は哺乳動物維基百科"


def trained(model: Any, trainer: Any, normalizer: Any, splitter: Any) -> Tokenizer:
    library = Tokenizer(model)
    library.normalizer, library.pre_tokenizer = normalizer, splitter
    library.train_from_iterator(ENGLISH, trainer)
    return library


def bpe(unknown: str | None = None, normalizer: Any = None) -> Tokenizer:
    special = ["<eos>", *([unknown] if unknown else [])]
    trainer = trainers.BpeTrainer(special_tokens=special, show_progress=False)
    return trained(models.BPE(unk_token=unknown), trainer, normalizer, pre_tokenizers.Whitespace())


def byte_level(alphabet: list[str]) -> Tokenizer:
    trainer = trainers.BpeTrainer(
        special_tokens=["<eos>"], initial_alphabet=alphabet, show_progress=False
    )
    splitter = pre_tokenizers.ByteLevel(add_prefix_space=False)
    library = trained(models.BPE(), trainer, None, splitter)
    library.decoder = decoders.ByteLevel()
    return library


def word_piece() -> Tokenizer:
    trainer = trainers.WordPieceTrainer(special_tokens=["<eos>", "[UNK]"], show_progress=False)
    model, normalizer = models.WordPiece(unk_token="[UNK]"), normalizers.BertNormalizer()
    return trained(model, trainer, normalizer, pre_tokenizers.BertPreTokenizer())


def unigram() -> Tokenizer:
    trainer = trainers.UnigramTrainer(
        special_tokens=["<eos>", "<unk>"], unk_token="<unk>", show_progress=False
    )
    return trained(models.Unigram(), trainer, None, pre_tokenizers.Metaspace())


def word_level() -> Tokenizer:
    trainer = trainers.WordLevelTrainer(special_tokens=["<eos>", "<unk>"], show_progress=False)
    model = models.WordLevel(unk_token="<unk>")
    return trained(model, trainer, None, pre_tokenizers.Whitespace())


def folded() -> Tokenizer:
    """A tokenizer whose normalizer changes much: width, case and accents."""
    steps = [normalizers.NFKD(), normalizers.StripAccents(), normalizers.Lowercase()]
    return bpe(normalizer=normalizers.Sequence(steps))


ALL_BYTES = sorted(pre_tokenizers.ByteLevel.alphabet())
LOSSY = {
    "BPE without unknown token": (bpe, "vanishes"),
    "BPE with one": (lambda: bpe("<unk>"), "unknown token"),
    "byte-level BPE without all bytes": (lambda: byte_level([]), "vanishes"),
    "WordPiece": (word_piece, "unknown token"),
    "Unigram": (unigram, "unknown token"),
    "WordLevel": (word_level, "unknown token"),
    "BPE with a normalizer": (folded, "vanishes"),
}


@pytest.fixture
def run(tokmill: Callable[..., Any], tmp_path: Path) -> Callable[..., Any]:
    """Run a command on texts with a tokenizer."""

    def start(command: str, library: Tokenizer, texts: list[str], *words: str) -> Any:
        folder = tmp_path / "tokenizer"
        folder.mkdir(exist_ok=True)
        library.save(str(folder / "tokenizer.json"))
        path = tmp_path / "in.jsonl"
        path.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
        named = ("-t", folder, "--eos-token", "<eos>", "-o", tmp_path / "out")
        return tokmill(command, path, *named, "--engine", "reference", *words)

    return start


@pytest.mark.parametrize("name", LOSSY)
def test_chinese_through_an_english_tokenizer_stops_plan_and_run(run, name, tmp_path):
    make, said = LOSSY[name]
    texts, library = [HAN * 3, "hello " + HAN, HAN], make()
    for command in ("plan", "pretrain"):
        outcome = run(command, library, texts)
        assert outcome.code == 3, (command, outcome.out)
        assert "the tokenizer cannot write this text: " in outcome.error
        assert said in outcome.error
    accepted = run("pretrain", library, texts, "--max-unknown-fraction", "1", "--overwrite")
    assert accepted.code == 0
    assert "unknown  " in accepted.out


@pytest.mark.parametrize("name", LOSSY)
def test_one_strange_character_is_a_line_and_no_error(run, name, tmp_path):
    texts = [*ENGLISH * 4, "the quick 猫 brown fox"]
    assert run("plan", LOSSY[name][0](), texts).code == 0
    outcome = run("pretrain", LOSSY[name][0](), texts)
    (line,) = [line for line in outcome.out.splitlines() if line.startswith("unknown")]
    assert "%" in line
    counters = manifest(tmp_path / "out")["totals"]["counters"]
    assert sum(counters.values()) == (3 if "bytes of characters" in line else 1)


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: byte_level(ALL_BYTES), f"{HAN} hello 🐈 é"),
        (folded, "ＨＥＬＬＯ Wörld, the QUICK fox\u0301\u00a0\u3000"),
        (bpe, "hello  world\n\n\tthe\u00a0quick "),
        (word_piece, "HELLO Wörld the\u0301 quick"),
    ],
)
def test_what_a_normalizer_or_bytes_write_is_no_loss(run, make, text, tmp_path):
    texts = [text.replace(",", ""), "hello world"]
    outcome = run("pretrain", make(), texts)
    assert outcome.code == 0, outcome.err
    assert "unknown" not in outcome.out
    assert "counters" not in manifest(tmp_path / "out")["totals"]


def test_the_counts_do_not_depend_on_blocks(run, tmp_path):
    texts = [f"hello {'猫' * (i % 5)} world" for i in range(60)]
    words = ("--max-unknown-fraction", "1", "--part-bytes", "700B")
    found = []
    for more in ((), ("--workers", "2", "--threads", "2")):
        assert run("pretrain", bpe(), texts, *words, *more, "--overwrite").code == 0
        found.append(manifest(tmp_path / "out")["totals"]["counters"])
    assert found == [{"bytes of characters that no token writes": 3 * 2 * 60}] * 2
