"""Fill-in-the-middle: the two orders, their shares, and that number, seed and epoch decide."""

from __future__ import annotations

import pickle
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import AddedToken
from tokenizers import Tokenizer as Library

import tokmill
from tests.fixtures.datasets import TOKENIZER
from tokmill.api.dataset import Dataset
from tokmill.errors import UsageError
from tokmill.loader import documents
from tokmill.loader.document_source import FIM_NAMES, FillInTheMiddle

TOKENS = (5, 6, 7)
PREFIX, SUFFIX, MIDDLE = TOKENS
BOS, EOS = 1, 2


def fim(rate: float = 1.0, spm_rate: float = 0.5, seed: int = 0, epoch: int = 0) -> FillInTheMiddle:
    return FillInTheMiddle(rate, spm_rate, TOKENS, EOS, BOS, seed, epoch)


def order_of(ids: list[int]) -> str:
    """Return how a document stands there; its text has none of the three tokens."""
    if PREFIX not in ids:
        return "whole"
    return "spm" if ids[ids.index(PREFIX) + 1] == SUFFIX else "psm"


def restored(ids: list[int]) -> list[int]:
    """Return a document in the order of its text, without the three tokens."""
    if order_of(ids) == "whole":
        return ids
    prefix, suffix, middle = (ids.index(token) for token in TOKENS)
    end = len(ids) - (ids[-1] == EOS)
    if order_of(ids) == "spm":  # prefix and middle are one piece
        between = [*ids[middle + 1 : end], *ids[suffix + 1 : middle]]
    else:
        between = [*ids[prefix + 1 : suffix], *ids[middle + 1 : end], *ids[suffix + 1 : middle]]
    return [*ids[:prefix], *between, *ids[end:]]


@given(
    st.lists(st.integers(8, 99), max_size=12), st.booleans(), st.booleans(),
    st.floats(0, 1), st.floats(0, 1), st.integers(0, 2**64 - 1), st.integers(0, 2**40),
)  # fmt: skip
def test_without_the_three_tokens_and_in_order_a_document_is_what_it_was(
    body: list[int], has_bos: bool, has_eos: bool, rate: float, spm: float, seed: int, number: int
) -> None:
    ids = np.array([*[BOS] * has_bos, *body, *[EOS] * has_eos], np.int64)
    if not len(ids):
        return
    how = fim(rate, spm, seed)
    (chances,) = how.chances(np.array([number]))
    permuted = how.permuted(ids, chances).tolist()
    assert restored(permuted) == ids.tolist()
    if order_of(permuted) != "whole":
        assert Counter(permuted) == Counter([*ids.tolist(), *TOKENS])
        assert (permuted[0] == BOS, permuted[-1] == EOS) == (has_bos, has_eos)


@pytest.mark.parametrize(
    ("spm_rate", "expected"),
    [
        (0, [BOS, PREFIX, 10, SUFFIX, 13, 14, MIDDLE, 11, 12, EOS]),
        (1, [BOS, PREFIX, SUFFIX, 13, 14, MIDDLE, 10, 11, 12, EOS]),
    ],
)
def test_the_orders_are_those_of_the_paper(spm_rate: float, expected: list[int]) -> None:
    ids = np.array([BOS, 10, 11, 12, 13, 14, EOS])
    chances = np.array([0.0, 0.0, 0.6, 0.2])  # of 6 places: before 13 and before 11
    assert fim(1, spm_rate).permuted(ids, chances).tolist() == expected


def is_near(count: int, n: int, share: float) -> bool:
    """Return whether a count is within four standard deviations of a binomial distribution."""
    return abs(count - n * share) < 4 * np.sqrt(n * share * (1 - share))


def test_orders_have_their_shares() -> None:
    n, ids = 20_000, np.arange(10, 19)
    how = fim(0.7, 0.25, seed=3)
    permuted = [how.permuted(ids, chances).tolist() for chances in how.chances(np.arange(n))]
    counts = Counter(map(order_of, permuted))
    empty_prefix = 1 - 0.9**2  # then both orders are the same tokens
    assert is_near(counts["whole"], n, 0.3)
    assert is_near(counts["spm"], n, 0.7 * (0.25 + 0.75 * empty_prefix))
    assert is_near(counts["psm"], n, 0.7 * 0.75 * (1 - empty_prefix))


def sample_ids(source: Any, numbers: range) -> list[list[int]]:
    return [sample["input_ids"].tolist() for sample in source.__getitems__(numbers)]


def test_seed_epoch_and_number_alone_decide(pretrained: Dataset) -> None:
    every = range(len(pretrained.split("train")))
    options: dict[str, Any] = {"fim_rate": 0.5, "fim_tokens": TOKENS, "seed": 9}
    source = documents(pretrained, **options)
    together = sample_ids(source, every)
    assert [source[i]["input_ids"].tolist() for i in reversed(every)] == together[::-1]
    copy = pickle.loads(pickle.dumps(source))  # as in a worker
    assert sample_ids(copy, every) == together
    assert copy.fingerprint == source.fingerprint
    whole = documents(pretrained)
    assert [restored(ids) for ids in together] == sample_ids(whole, every)
    for other in ({"seed": 10}, {"epoch": 1}, {"fim_spm_rate": 1}):
        changed = documents(pretrained, **{**options, **other})
        assert sample_ids(changed, every) != together
        assert len({changed.fingerprint, source.fingerprint, whole.fingerprint}) == 3


def test_the_choices_never_change_between_versions() -> None:
    chances = fim(seed=42, epoch=3).chances(np.array([0, 1, 10**12]))
    assert (chances[:, 0] * 1e9).astype(int).tolist() == [651715505, 826519566, 596389195]


@pytest.mark.parametrize("names", FIM_NAMES)
def test_the_tokens_are_those_of_the_tokenizer(tmp_path: Path, names: tuple[str, ...]) -> None:
    library = Library.from_file(str(TOKENIZER / "tokenizer.json"))
    before = library.get_vocab_size()
    library.add_tokens([AddedToken(name, special=False) for name in names])
    library.save(str(tmp_path / "tokenizer.json"))
    (tmp_path / "a.jsonl").write_text('{"text": "hello world"}\n')
    dataset = tokmill.pretrain(
        tmp_path / "a.jsonl", tokenizer=tmp_path, output=tmp_path / "out", eos_token="<eos>",
        progress=False,
    )  # fmt: skip
    found = documents(dataset, fim_rate=1)[0]["input_ids"]
    assert sorted(found[found >= before]) == [before, before + 1, before + 2]
    source = documents(dataset, fim_rate=1, fim_spm_rate=0, fim_tokens=names)
    ids = source[0]["input_ids"].tolist()
    places = [ids.index(before + i) for i in range(3)]
    assert places[0] == 0
    assert places == sorted(places)


def test_a_tokenizer_without_such_tokens_is_one_line(pretrained: Dataset) -> None:
    with pytest.raises(
        UsageError, match=r"has no tokens for it, such as <fim_prefix> <fim_su"
    ) as e:
        documents(pretrained, fim_rate=0.5)
    assert "\n" not in str(e.value)


@pytest.mark.parametrize(
    "tokens", [(1, 2), (3, 3, 4), (3, 4, 10**6), (3.0, 4, 5), ("<eos>", "<no>", "<bos>")]
)
def test_wrong_tokens_are_refused(pretrained: Dataset, tokens: tuple[Any, ...]) -> None:
    with pytest.raises(UsageError, match="fim_tokens: expected three tokens of the tokenizer"):
        documents(pretrained, fim_rate=0.5, fim_tokens=tokens)


def test_a_dataset_without_a_tokenizer_asks_for_ids(make_dataset) -> None:
    directory, _ = make_dataset()
    with pytest.raises(UsageError, match=r"does not load: .*; or name their ids with fim_tok"):
        documents(directory, fim_rate=0.5)
    assert len(documents(directory, fim_rate=1, fim_tokens=(3, 4, 5))[0]["input_ids"]) == 7


@pytest.mark.parametrize(
    "wrong",
    [{"fim_rate": 1.5}, {"fim_rate": -1}, {"fim_spm_rate": 2}, {"seed": 1 << 64}, {"epoch": -1}],
)
def test_a_wrong_argument_is_named(pretrained: Dataset, wrong: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match=f"^{next(iter(wrong))}: expected"):
        documents(pretrained, **{"fim_rate": 0.5, "fim_tokens": TOKENS, **wrong})


def test_chats_are_refused(chats: Dataset) -> None:
    with pytest.raises(UsageError, match="fim_rate: chats have no middle to fill in"):
        documents(chats, fim_rate=0.5, fim_tokens=TOKENS)
