"""Documents that share a run of tokens with held-out texts are marked, reported, dropped."""

from __future__ import annotations

import json
import random
import re
import signal
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import tokmill
from tests.fixtures.datasets import CHATS, TOKENIZER
from tokmill.api.dataset import Dataset
from tokmill.errors import RecordError, StateError, StorageError, TokmillError, UsageError
from tokmill.mixing import contamination, inputs, ngrams
from tokmill.mixing.words import words_of

Make = Callable[..., Dataset]
BYTES = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
TEXT = "what is the sum of 17 and 25, and why is it not 43?"
DOCUMENTS = [
    "nothing to see here, move along and read on",
    f"asked in a forum: {TEXT} nobody knew",
    "a third document, longer than the others, of no interest at all to anybody",
    f"{TEXT[:-4]} and so on",
]


@pytest.fixture(scope="module")
def texts(make: Make) -> Dataset:
    return make(DOCUMENTS)


def mixed(dataset: Dataset, output: Path, against: Any, **settings: Any) -> Dataset:
    return tokmill.mix(
        dataset.directory, output=output, against=against, workers=1, progress=False, **settings
    )


def marks(dataset: Dataset, split: str = "train") -> list[int]:
    return np.fromfile(dataset.directory / f"contaminated-{split}.bin", np.uint8).tolist()


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def rows(path: Path, *records: Any) -> Path:
    path.parent.mkdir(exist_ok=True)
    path.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")
    return path


@pytest.fixture
def bench(tmp_path: Path) -> Path:
    """A folder with a benchmark of one row."""
    record = {"id": "x-1", "question": TEXT, "answer": "42", "choices": ["42", "43"]}
    return rows(tmp_path / "bench" / "sums.jsonl", record).parent


# What is found


def is_shared(ids: Sequence[Any], held_out: Sequence[Sequence[Any]], n: int) -> bool:
    of_texts = {tuple(text[i : i + n]) for text in held_out for i in range(len(text) - n + 1)}
    return any(tuple(ids[i : i + n]) in of_texts for i in range(len(ids) - n + 1))


def planted(rng: random.Random) -> tuple[list[str], list[str]]:
    """Return documents and held-out texts, of few letters or of many, that share parts."""
    letters = rng.choice(["ab", "abc ", "the quick brown fox jumps over"])
    held_out = ["".join(rng.choices(letters, k=rng.randint(1, 30))) for _ in range(6)]
    documents = ["".join(rng.choices(letters, k=rng.randint(1, 40))) for _ in range(40)]
    for number, text in enumerate(held_out):
        at, own = rng.randrange(len(text)), documents[number]
        place = rng.randrange(len(own) + 1)
        documents[number] = own[:place] + text[at:] + own[place:]
    return documents, held_out


@pytest.mark.parametrize("n", [1, 2, 13])
@pytest.mark.parametrize("seed", range(3))
def test_what_is_marked_is_what_a_search_over_all_ids_finds(
    make, tmp_path, monkeypatch, n, seed
) -> None:
    """Across shards, chunks and blocks; of train and val; shuffled and repeated; of both dtypes."""
    rng = random.Random(seed)
    monkeypatch.setattr(inputs, "CHUNK_TOKENS", rng.choice([30, 300]))
    monkeypatch.setattr(contamination, "BLOCK_TOKENS", rng.choice([1, 40, 1 << 20]))
    monkeypatch.setattr(ngrams, "BLOCK_TOKENS", rng.choice([1, 16, 1 << 15]))
    documents, held_out = planted(rng)
    settings = {"dtype": rng.choice(["uint16", "uint32"]), "shard_tokens": rng.choice([50, 0])}
    dataset = make(documents, val_fraction=0.3, **settings)
    against = make(held_out)
    shuffle = {"shuffle": seed} if seed % 2 else {}
    mix = tokmill.mix(
        {dataset.directory: rng.choice(["1x", "2.5x"])}, against=against.directory, ngram=n,
        output=tmp_path / "out", workers=1, progress=False, **shuffle,
    )  # fmt: skip
    mix.verify()
    of_texts = [ids.tolist()[:-1] for ids in against]
    for split in mix.splits:
        own = [ids.tolist() for ids in mix.split(split)]
        assert marks(mix, split) == [is_shared(ids, of_texts, n) for ids in own]


def test_a_text_is_found_at_every_place_of_a_document(make, tmp_path) -> None:
    """Wherever it is pasted: some of its tokens are others at its ends, those inside are not."""
    filler = "some words, and others. "
    documents = [filler[:place] + TEXT + filler[place:] for place in range(len(filler) + 1)]
    mix = mixed(make(documents), tmp_path / "out", rows(tmp_path / "t.jsonl", {"text": TEXT}))
    assert marks(mix) == [1] * len(documents)


def test_chats_are_searched_with_their_masks_kept(chats, tmp_path) -> None:
    """The held-out text is a reply; packed rows of the mix hold what those of the chats hold."""
    first = json.loads(CHATS.read_text(encoding="utf-8").splitlines()[0])
    reply = first["messages"][-1]["content"].rpartition("\n")[2]
    (number,) = [i for i in range(len(chats)) if chats.origin(i).record == 1]
    mix = mixed(chats, tmp_path / "out", rows(tmp_path / "t.jsonl", {"text": reply}))
    mix.verify()
    assert [*marks(mix), *marks(mix, "val")][number] == 1
    assert [mix.mask(i).tolist() for i in range(9)] == [chats.mask(i).tolist() for i in range(9)]


# Words


@pytest.mark.parametrize(
    "variant",
    [TEXT, TEXT.upper(), TEXT.replace(" ", "\n\n"), TEXT.replace(",", " --"), f"x{TEXT}"[1:]],
)
def test_words_are_found_in_other_spellings(make, tmp_path, bench, variant) -> None:
    dataset = make([f"I ask: '{variant}' (and nobody knows)", variant[: len(variant) // 2]])
    mix = mixed(dataset, tmp_path / "out", bench, ngram_unit="words", report=tmp_path / "r")
    assert marks(mix) == [1, 0]
    first, *_ = lines(tmp_path / "r")
    assert first["run"] == "what is the sum of 17 and 25 and why is it not 43"
    assert (first["words"], first["run_start"], first["document_words"]) == (14, 2, 20)


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("n", [1, 4])
def test_marked_by_words_is_what_a_search_over_all_words_finds(
    make, tmp_path, monkeypatch, n, seed
) -> None:
    monkeypatch.setattr(contamination, "BLOCK_TOKENS", [1, 30][seed % 2])
    rng = random.Random(seed)
    words = ["on", "Off", "天", "9", "ＡＢ"]
    held_out = [" ".join(rng.choices(words, k=rng.randint(1, 9))) for _ in range(5)]
    documents = [", ".join(rng.choices([*words, "no"], k=rng.randint(1, 30))) for _ in range(40)]
    against = make(held_out) if seed % 2 else None
    path = rows(tmp_path / "t.jsonl", *[{"t": text} for text in held_out])
    mix = mixed(
        make(documents), tmp_path / "out", path if against is None else against.directory,
        ngram_unit="words", ngram=n, against_fields=["t"],
    )  # fmt: skip
    of_texts = list(map(words_of, held_out))
    assert marks(mix) == [is_shared(words_of(text), of_texts, n) for text in documents]


def test_a_word_is_letters_and_digits_or_one_character_of_han_kana_hangul() -> None:
    assert words_of("Don't  STOP_me: x2!") == ["don", "t", "stop", "me", "x2"]
    assert words_of("日本ab가나, Straße Ⅷ①") == ["日", "本", "ab", "가", "나", "strasse", "viii1"]


# Where held-out texts come from


def as_parquet(folder: Path) -> Path:
    pq.write_table(pa.table({"question": [TEXT], "n": [1]}), folder / "q.parquet")
    return folder / "q.parquet"


def as_text(folder: Path) -> Path:
    (folder / "q.txt").write_text(TEXT, encoding="utf-8")
    return folder / "q.txt"


def as_csv(folder: Path) -> Path:
    (folder / "q.csv").write_text(f'question,answer\n"{TEXT}",42\n', encoding="utf-8")
    return folder / "q.csv"


def as_array(folder: Path) -> Path:
    (folder / "q.json").write_text(json.dumps([{"a": {"b": [TEXT]}}]), encoding="utf-8")
    return folder / "q.json"


def as_chat(folder: Path) -> Path:
    return rows(folder / "q.jsonl", {"messages": [{"role": "user", "content": TEXT}]})


def as_folder(folder: Path) -> Path:
    return rows(folder / "inside" / "q.jsonl", {"prompt": TEXT}).parent


def as_folder_of_datasets(folder: Path) -> Path:
    tokmill.pretrain(
        as_text(folder), tokenizer=TOKENIZER, output=folder / "all" / "one", progress=False
    )
    return folder / "all"


@pytest.mark.parametrize(
    "write",
    [as_parquet, as_text, as_csv, as_array, as_chat, as_folder, as_folder_of_datasets],
)
def test_held_out_texts_are_read_as_other_sources_are(texts, tmp_path, write) -> None:
    assert marks(mixed(texts, tmp_path / "out", write(tmp_path))) == [0, 1, 0, 1]


def test_held_out_texts_may_stand_in_a_store(texts, make, tmp_path, uploaded, bench) -> None:
    url = uploaded(make([TEXT]).directory)
    assert marks(mixed(texts, tmp_path / "a", url)) == [0, 1, 0, 1]
    boto3 = pytest.importorskip("boto3")
    body = (bench / "sums.jsonl").read_bytes()
    boto3.client("s3").put_object(Bucket="bucket", Key=f"{tmp_path.name}/b/sums.jsonl", Body=body)
    found = mixed(texts, tmp_path / "b", f"s3://bucket/{tmp_path.name}/b")
    assert marks(found) == [0, 1, 0, 1]


def test_each_field_with_text_is_a_text_of_its_own(texts, tmp_path) -> None:
    """Numbers, ids and URLs are none; a run never goes from one field into the next."""
    record = {"id": "4", "url": "https://x.org/a", "question": TEXT[:8], "rest": TEXT[8:14]}
    mix = mixed(texts, tmp_path / "a", rows(tmp_path / "r.jsonl", record), report=tmp_path / "r")
    assert [(line["field"], line["row"]) for line in lines(tmp_path / "r")] == [
        ("question", 1),
        ("rest", 1),
    ]
    assert marks(mix) == [0, 0, 0, 0]


def test_named_fields_alone_are_looked_for(texts, tmp_path, bench) -> None:
    other = {"against_fields": ["choices"], "ngram": 1}
    mix = mixed(texts, tmp_path / "out", bench, report=tmp_path / "r", **other)
    assert {line["field"] for line in lines(tmp_path / "r")} == {"choices[]"}
    assert marks(mix)[2] == 0


# The report


def test_the_report_says_which_text_and_where(texts, tmp_path, bench) -> None:
    mixed(texts, tmp_path / "out", bench, report=tmp_path / "r.jsonl")
    first, second, *_ = lines(tmp_path / "r.jsonl")
    ids = texts[1].tolist()
    start, stop = first["run_start"], first["run_start"] + first["run_tokens"]
    origin = texts.origin(1)
    assert first == {
        "dataset": str(texts.directory),
        "split": "train",
        "document": 1,
        "source": origin.path,
        "record": origin.record,
        "against": str(bench / "sums.jsonl"),
        "row": 1,
        "field": "question",
        "tokens": first["run_tokens"],
        "document_tokens": len(ids),
        "run": texts.decode(ids[start:stop]),
        "run_start": start,
        "run_tokens": first["run_tokens"],
        "in_texts": 1,
    }
    assert TEXT in first["run"]
    assert second["document"] == 3


def test_texts_that_are_too_short_are_listed_as_not_checked(texts, tmp_path, bench) -> None:
    mixed(texts, tmp_path / "out", bench, report=tmp_path / "r.jsonl", ngram=1000)
    assert lines(tmp_path / "r.jsonl") == [
        {
            "against": str(bench / "sums.jsonl"),
            "row": 1,
            "field": "question",
            "not_checked": "shorter than 1,000 tokens",
            "tokens": lines(tmp_path / "r.jsonl")[0]["tokens"],
        }
    ]


def test_a_report_of_a_finished_mix_is_the_one_that_it_wrote(texts, tmp_path, bench) -> None:
    for name in ("a", "b"):
        mixed(texts, tmp_path / "out", bench, report=tmp_path / name)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes() != b""


def test_a_report_replaces_nothing_but_a_report(texts, tmp_path, bench) -> None:
    (tmp_path / "notes").write_text("mine")
    with pytest.raises(UsageError, match="no report of a mix"):
        mixed(texts, tmp_path / "out", bench, report=tmp_path / "notes")
    assert (tmp_path / "notes").read_text() == "mine"
    assert not (tmp_path / "out").exists()


# Dropped


def test_documents_are_dropped_on_request(texts, tmp_path, bench) -> None:
    mix = mixed(texts, tmp_path / "out", bench, drop_contaminated=True)
    mix.verify()
    assert [mix.text(i) for i in range(len(mix))] == [texts.text(0), texts.text(2)]
    assert not list(mix.directory.glob("contaminated-*"))
    assert mix.manifest["mix"]["contaminated"] == 2
    drops = mix.manifest["totals"]["drops"]
    assert drops == {"shares tokens with a held-out text": 2}


def test_a_duplicate_of_a_dropped_document_is_dropped_for_the_same_reason(
    make, tmp_path, bench
) -> None:
    mix = mixed(
        make([DOCUMENTS[1], DOCUMENTS[1], DOCUMENTS[0], DOCUMENTS[0]]), tmp_path / "out", bench,
        drop_contaminated=True, dedup=True,
    )  # fmt: skip
    assert len(mix) == 1
    assert mix.manifest["totals"]["drops"] == {
        "duplicate": 1,
        "shares tokens with a held-out text": 2,
    }


def test_documents_that_are_left_out_are_not_reported(texts, tmp_path, bench) -> None:
    longest = max(len(ids) for ids in texts)
    mix = mixed(texts, tmp_path / "out", bench, report=tmp_path / "r", max_tokens=longest - 1)
    assert [line["document"] for line in lines(tmp_path / "r")] == [
        number for number in (1, 3) if len(texts[number]) < longest
    ]
    assert len(marks(mix)) == len(mix)


# Again, stopped, changed


def test_a_changed_benchmark_is_another_mix(texts, tmp_path, bench) -> None:
    mixed(texts, tmp_path / "out", bench)
    rows(bench / "sums.jsonl", {"question": f"{TEXT} or 41?"})
    with pytest.raises(StateError, match=r"sums\.jsonl holds other held-out texts"):
        mixed(texts, tmp_path / "out", bench)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"ngram": 12}, "ngram was not set, is 12"),
        ({"drop_contaminated": True}, "drop_contaminated was not set, is True"),
        ({"against": None}, "against was .*, is none"),
    ],
)
def test_other_settings_are_another_mix(texts, tmp_path, bench, change, said) -> None:
    mixed(texts, tmp_path / "out", bench)
    settings = {"against": bench, **change}
    with pytest.raises(StateError, match=said):
        mixed(texts, tmp_path / "out", settings.pop("against"), **settings)


@pytest.fixture(scope="module")
def many(make: Make) -> Dataset:
    return make([f"{TEXT if n % 7 == 0 else 'word '} {n} " * 30 for n in range(600)])


@pytest.mark.parametrize("name", [".mix/overlaps-*", "parts/*.json"])
def test_a_stopped_search_goes_on(many, tmp_path, bench, start, name) -> None:
    options = ["--against", bench, "--shuffle", "3", "--report", tmp_path / "r", "-q"]
    begun = start("mix", many.directory, "-o", tmp_path / "out", "--workers", "2", *options)
    begun.stop_when(lambda: any((tmp_path / "out").glob(name)), signal.SIGKILL)
    whole = mixed(many, tmp_path / "whole", bench, shuffle=3, report=tmp_path / "r of whole")
    again = mixed(many, tmp_path / "out", bench, shuffle=3, report=tmp_path / "r")
    assert marks(again) == marks(whole)
    assert sum(marks(whole)) == 86
    assert [file.checksum for file in again._manifest.files if file.name.endswith("bin")] == [
        file.checksum for file in whole._manifest.files if file.name.endswith("bin")
    ]
    assert (tmp_path / "r").read_bytes() == (tmp_path / "r of whole").read_bytes()


# What is refused


@pytest.mark.parametrize(
    ("name", "content", "error", "said"),
    [
        ("missing.jsonl", None, TokmillError, "missing.jsonl"),
        ("empty.jsonl", "", UsageError, "empty.jsonl.*no text to look for|empty"),
        ("broken.jsonl", '{"question": ', RecordError, "must be read to the last one"),
        ("numbers.jsonl", '{"n": 7}\n', UsageError, "no text to look for"),
        ("bytes.jsonl", b'{"question": "\xff"}\n', RecordError, "must be read to the last one"),
        ("unknown.xyz", "text", UsageError, "expected a file ending in"),
        ("cut.jsonl.gz", b"\x1f\x8b\x08\0\0", TokmillError, "cut.jsonl.gz"),
    ],
)
def test_what_cannot_be_read_is_refused_in_a_line(
    texts, tmp_path, name, content, error, said
) -> None:
    path = tmp_path / name
    if content is not None:
        path.write_bytes(content.encode() if isinstance(content, str) else content)
    with pytest.raises(error, match=said) as raised:
        mixed(texts, tmp_path / "out", path)
    assert "\n" not in str(raised.value)
    assert not re.search("--(on-|format)", str(raised.value))  # a mix has no such options
    assert not (tmp_path / "out").exists()


def test_an_empty_folder_is_refused(texts, tmp_path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(TokmillError, match="empty"):
        mixed(texts, tmp_path / "out", tmp_path / "empty")


def test_a_dataset_of_another_tokenizer_is_refused(
    texts, tmp_path, make_tokenizer, bytes_model
) -> None:
    corpus = rows(tmp_path / "t.jsonl", {"text": TEXT})
    make_tokenizer(bytes_model(), pre_tokenizer=BYTES)
    other = tokmill.pretrain(
        corpus, tokenizer=tmp_path, eos_token="0", output=tmp_path / "o", progress=False
    )
    with pytest.raises(UsageError, match="is not that of the mixed datasets"):
        mixed(texts, tmp_path / "out", other.directory)


@pytest.mark.parametrize("setting", ["report", "drop_contaminated", "against_fields"])
def test_settings_without_held_out_texts_are_refused(texts, tmp_path, setting) -> None:
    value = True if setting == "drop_contaminated" else "x"
    with pytest.raises(UsageError, match="name them with against"):
        mixed(texts, tmp_path / "out", None, **{setting: value})


def test_a_report_that_cannot_be_written_is_refused_at_once(texts, tmp_path, bench) -> None:
    with pytest.raises((UsageError, StorageError), match="its folder is not there"):
        mixed(texts, tmp_path / "out", bench, report=tmp_path / "no" / "r.jsonl")
    assert not (tmp_path / "out").exists()


def test_the_dataset_itself_as_held_out_text_marks_all(texts, tmp_path) -> None:
    assert marks(mixed(texts, tmp_path / "out", texts.directory)) == [
        int(len(ids) > 13) for ids in texts
    ]
