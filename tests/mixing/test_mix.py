"""Mix finished datasets: every promise of `tokmill mix`, seen in the datasets that it writes.

Datasets in one bucket are merged by the store; nothing passes through this machine.
"""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tokmill
from tests.fixtures.datasets import CHATS, RECORDS, TOKENIZER
from tokmill.api.dataset import Dataset
from tokmill.dataset import part_writer
from tokmill.errors import StateError, UsageError, VerifyError
from tokmill.mixing import inputs as mixing_inputs
from tokmill.mixing.survey import Origins
from tokmill.place import open_place

Make = Callable[..., Dataset]


@pytest.fixture(scope="module")
def numbers(make: Make) -> list[Dataset]:
    """Two datasets of many short documents, each of another text, with val."""
    return [
        make([f"{word} {n} " * (1 + n % 7) for n in range(900)], val_fraction=0.05, part_bytes=9000)
        for word in ("one", "two")
    ]


@pytest.fixture
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a chunk have 1,000 tokens, so that small datasets have many."""
    monkeypatch.setattr(mixing_inputs, "CHUNK_TOKENS", 1000)


def documents(dataset: Dataset, split: str = "train") -> list[bytes]:
    return [ids.tobytes() for ids in dataset.split(split)]


def files_of(directory: Path) -> dict[str, bytes]:
    names = [path for path in directory.rglob("*") if path.suffix in (".bin", ".idx", ".origin")]
    return {path.name: path.read_bytes() for path in names}


def mixed(inputs: Any, output: Path, **settings: Any) -> Dataset:
    settings = {"workers": 1, "progress": False, **settings}
    dataset = tokmill.mix(inputs, output=output, **settings)
    dataset.verify()
    return dataset


class TestMerge:
    def test_the_documents_of_all_follow_each_other(self, numbers, tmp_path) -> None:
        dataset = mixed([d.directory for d in numbers], tmp_path / "all")
        for split in ("train", "val"):
            expected = [ids for source in numbers for ids in documents(source, split)]
            assert documents(dataset, split) == expected

    def test_shards_are_links_and_take_no_space(self, numbers, tmp_path) -> None:
        dataset = mixed([d.directory for d in numbers], tmp_path / "all")
        for shard in dataset.shards:
            assert (dataset.directory / f"{shard.name}.bin").stat().st_nlink > 1

    def test_without_links_files_are_copied(self, numbers, tmp_path, monkeypatch) -> None:
        monkeypatch.setattr("tokmill.place.directory.link", lambda source, directory, name: False)
        dataset = mixed([d.directory for d in numbers], tmp_path / "all")
        assert len(dataset) == sum(map(len, numbers))

    def test_counts_and_rejects_are_those_of_all(self, pretrained, single, tmp_path) -> None:
        dataset = mixed([pretrained.directory, single.directory], tmp_path / "all")
        for key in ("records", "rejects", "drops", "documents", "input_bytes"):
            totals = [d.manifest["totals"][key] for d in (pretrained, single)]
            total = (
                sum(map(Counter, totals), Counter()) if key in ("rejects", "drops") else sum(totals)
            )
            assert dataset.manifest["totals"][key] == total
        assert len(list((dataset.directory / "rejects").iterdir())) == sum(
            len(list((d.directory / "rejects").iterdir())) for d in (pretrained, single)
        )

    def test_a_mix_can_be_merged_again(self, numbers, tmp_path) -> None:
        inner = mixed([d.directory for d in numbers], tmp_path / "inner", shuffle=3)
        outer = mixed([inner.directory, numbers[0].directory], tmp_path / "outer")
        assert documents(outer) == documents(inner) + documents(numbers[0])
        assert outer.origin(7).record == inner.origin(7).record
        assert outer.manifest["mix"]["inputs"][0]["mix"] == inner.manifest["mix"]

    def test_chats_keep_masks_and_are_packed_again(self, chats, tmp_path) -> None:
        copy = tmp_path / "copy"
        shutil.copytree(chats.directory, copy)
        dataset = mixed([chats.directory, copy], tmp_path / "all")
        n = len(chats.split("train"))
        train, own = dataset.split("train"), chats.split("train")
        assert all(
            train.mask(k * n + i).tolist() == own.mask(i).tolist() for i in range(n) for k in (0, 1)
        )
        assert dataset.manifest["packs"]["train"]["samples"] == 2 * n

    @pytest.mark.parametrize("order", [(0, 1), (2, 0)])
    def test_rows_of_packs_have_room_for_all(self, chats, unpacked, tmp_path, order) -> None:
        short = tokmill.sft(
            CHATS, tokenizer=TOKENIZER, output=tmp_path / "short", packing=512, max_tokens=512,
            progress=False,
        )  # fmt: skip
        own = [(short, chats, unpacked)[i] for i in order]
        dataset = mixed([d.directory for d in own], tmp_path / "all")
        if unpacked in own:
            assert "packs" not in dataset.manifest
            assert dataset.manifest["config"]["sft"]["packing"] == 0
        else:
            assert dataset.manifest["packs"]["train"]["capacity"] == 4096

    def test_imported_tokens_can_be_mixed(self, numbers, single, tmp_path) -> None:
        numbers[0].export("megatron", tmp_path / "megatron")
        imported = tokmill.import_dataset(
            tmp_path / "megatron", trainer="megatron", output=tmp_path / "imported",
            tokenizer=TOKENIZER, progress=False,
        )  # fmt: skip
        inputs = [imported.directory, numbers[1].directory]
        merged = mixed(inputs, tmp_path / "all")
        assert documents(merged) == documents(imported) + documents(numbers[1])
        several = mixed([numbers[1].directory, imported.directory], tmp_path / "several")
        outer = mixed([single.directory, several.directory], tmp_path / "outer", shuffle=1)
        own = (single, numbers[1], imported)
        assert [row["documents"] for row in outer.manifest["sources"]] == [
            row["documents"] for d in own for row in d.manifest["sources"]
        ]
        shuffled = mixed(inputs, tmp_path / "shuffled", shuffle=1)
        assert Counter(documents(shuffled)) == Counter(documents(merged))


class TestShuffle:
    @pytest.fixture
    def one(self, numbers, tmp_path, small_chunks) -> Dataset:
        return mixed([d.directory for d in numbers], tmp_path / "one", shuffle=7, shard_tokens=3000)

    def test_the_bytes_do_not_depend_on_workers(self, numbers, one, tmp_path) -> None:
        two = tokmill.mix(
            [d.directory for d in numbers], output=tmp_path / "two", shuffle=7, shard_tokens=3000,
            workers=3, progress=False,
        )  # fmt: skip
        assert files_of(two.directory) == files_of(one.directory)

    def test_the_order_is_that_of_the_loader(self, numbers, one) -> None:
        before = [ids for d in numbers for ids in documents(d)]
        places = tokmill.loader.order.shuffled(np.arange(len(before)), len(before), seed=7)
        expected = [b""] * len(before)
        for place, ids in zip(places.tolist(), before, strict=True):
            expected[place] = ids
        assert documents(one) == expected


class TestShares:
    def test_a_budget_is_divided_within_a_document(self, make, tmp_path, small_chunks) -> None:
        shares = {"a": 0.001, "b": 0.02, "c": 0.1, "d": 0.279, "e": 0.6}
        sources = {
            name: make([f"{name} {n} " * (1 + n % 5) for n in range(400)]) for name in shares
        }
        budget = 6000
        dataset = mixed(
            {d.directory: shares[name] for name, d in sources.items()},
            tmp_path / "all",
            tokens=budget,
        )
        assert dataset.n_tokens <= budget
        for got, name in zip(dataset.manifest["mix"]["sources"], shares, strict=True):
            longest = max(map(len, sources[name]))
            assert shares[name] * budget - longest < got["tokens"] <= shares[name] * budget
        by_source = Counter()
        for number in range(len(dataset)):
            by_source[dataset.origin(number).path] += len(dataset[number])
        told = {row["path"]: row["tokens"] for row in dataset.manifest["sources"]}
        assert by_source == Counter(told)

    def test_a_source_that_is_too_small_is_said(self, numbers, tmp_path, caplog) -> None:
        n = numbers[0].split("train").n_tokens
        mixed({d.directory: 0.5 for d in numbers}, tmp_path / "all", tokens=3 * n)
        assert "its documents are written 1.5" in caplog.text

    def test_a_source_inside_a_dataset(self, make, numbers, tmp_path) -> None:
        both = mixed([d.directory for d in numbers], tmp_path / "both")
        path = numbers[1].manifest["sources"][0]["path"]
        dataset = mixed([f"{both.directory}#{path}"], tmp_path / "all")
        assert documents(dataset) == documents(numbers[1])


class TestDuplicates:
    @pytest.fixture
    def three(self, make: Make) -> list[Dataset]:
        texts = [f"text {n}" for n in range(300)]
        return [
            make(texts, val_fraction=0.1),
            make([*texts[:120], *(f"more {n}" for n in range(100)), "more 5", "more 6"]),
            make(["text 7", "alone", "alone"], val_fraction=0.5),
        ]

    def test_each_text_stands_there_once_and_val_wins(
        self, three, tmp_path, small_chunks, monkeypatch
    ) -> None:
        monkeypatch.setattr("tokmill.mixing.make.BUCKET_DOCUMENTS", 100)
        dataset = mixed([d.directory for d in three], tmp_path / "all", dedup=True)
        val, train = (documents(dataset, split) for split in ("val", "train"))
        of_val = list(dict.fromkeys(ids for d in three for ids in documents(d, "val")))
        of_train = dict.fromkeys(ids for d in three for ids in documents(d, "train"))
        assert val == of_val
        assert train == [ids for ids in of_train if ids not in set(of_val)]
        left = dataset.manifest["totals"]["drops"]["duplicate"]
        assert left == sum(map(len, three)) - len(dataset)

    def test_an_overlap_of_splits_is_said(self, three, tmp_path, caplog) -> None:
        mixed([d.directory for d in three[:2]], tmp_path / "all")
        assert "train and val share" in caplog.text


def only_even(ids: np.ndarray, lengths: np.ndarray, origins: Origins) -> np.ndarray:
    assert len(ids) == lengths.sum()
    return origins.records % 2 == 0


class TestFilters:
    def test_a_function(self, numbers, tmp_path) -> None:
        dataset = mixed(
            [numbers[0].directory], tmp_path / "all", where=f"{__name__}:only_even",
            workers=2,
        )  # fmt: skip
        assert all(dataset.origin(i).record % 2 == 0 for i in range(len(dataset)))
        assert len(dataset) == 450

    def test_a_list_of_records_and_hashes(self, numbers, tmp_path, small_chunks) -> None:
        source = numbers[0].split("train")
        listed = [source.origin(i) for i in (3, 600)]
        hashed = [3, 10, 11]
        import blake3

        lines = [{"source": o.path, "record": o.record} for o in listed]
        lines += [{"hash": blake3.blake3(source[i].tobytes()).digest(16).hex()} for i in hashed]
        path = tmp_path / "drop.jsonl"
        path.write_text("\n".join(map(json.dumps, lines)))
        dataset = mixed([numbers[0].directory], tmp_path / "all", drop=[path.name and str(path)])
        gone = {source[i].tobytes() for i in (3, 600, 10, 11)}
        assert documents(dataset) == [ids for ids in documents(source) if ids not in gone]

    @pytest.mark.parametrize(
        ("function", "workers"), [("raises", 2), ("exits", 1), ("ragged", 1), ("changes", 1)]
    )
    def test_a_function_that_fails(
        self, numbers, tmp_path, function, workers, small_chunks
    ) -> None:
        with pytest.raises(UsageError, match=f"{function} raised .*test_mix.py"):
            mixed(
                [d.directory for d in numbers], tmp_path / "all", dtype="uint32",
                where=f"{__name__}:{function}", workers=workers,
            )  # fmt: skip

    def test_another_list_of_the_same_name_is_another_mix(self, numbers, tmp_path) -> None:
        source, path = numbers[0].split("train"), tmp_path / "drop.jsonl"
        for number, overwrite in ((3, False), (4, True)):
            origin = source.origin(number)
            path.write_text(json.dumps({"source": origin.path, "record": origin.record}))
            if overwrite:
                with pytest.raises(StateError, match="other inputs or settings"):
                    mixed([numbers[0].directory], tmp_path / "all", drop=path)
            dataset = mixed(
                [numbers[0].directory], tmp_path / "all", drop=path, overwrite=overwrite
            )
            expected = documents(source)
            assert documents(dataset) == expected[:number] + expected[number + 1 :]


def raises(ids: np.ndarray, lengths: np.ndarray, origins: Origins) -> np.ndarray:
    raise ValueError("two\nlines")


def exits(ids: np.ndarray, lengths: np.ndarray, origins: Origins) -> np.ndarray:
    raise SystemExit(3)


def ragged(ids: np.ndarray, lengths: np.ndarray, origins: Origins) -> Any:
    return np.array([[True], [True, False]])


def changes(ids: np.ndarray, lengths: np.ndarray, origins: Origins) -> np.ndarray:
    ids[:] = 0
    return lengths > 0


class TestNames:
    @pytest.mark.parametrize("name", ["a#b=1", "with space", "中文"])
    def test_a_directory_may_have_any_name(self, single, tmp_path, monkeypatch, name) -> None:
        monkeypatch.chdir(tmp_path)
        shutil.copytree(single.directory, name)
        path = single.manifest["sources"][0]["path"]
        wanted = documents(single)
        for text in (name, f"{name}/", f"{name}=1x", f"{name}#{path}", f"{name}#{path}=1"):
            assert documents(mixed([text], "all", overwrite=True)) == wanted

    def test_one_input_needs_no_list(self, single, tmp_path) -> None:
        assert documents(mixed(single.directory, tmp_path / "all")) == documents(single)


class TestRefusals:
    @pytest.mark.parametrize(
        ("inputs", "settings", "message"),
        [
            ([], {}, "no dataset to mix"),
            (["{0}", "{0}"], {}, "named twice"),
            ({"{0}": 0.4, "{1}": "2x"}, {}, "give all of them"),
            (["{0}"], {"tokens": "1M"}, "a budget is divided by shares"),
            ({"{0}": 0}, {}, "above 0"),
            (["{0}#nobody"], {}, "no such source"),
            (["{0}"], {"where": "nobody:nothing"}, "cannot be imported"),
            (["{0}"], {"drop": ["missing.jsonl"]}, "cannot be read"),
            (["{0}"], {"min_tokens": 10**6}, "no document is left"),
            (["{0}"], {"count": "trained"}, "have no masks"),
        ],
    )
    def test_one_line_says_what_is_wrong(
        self, numbers, tmp_path, inputs, settings, message
    ) -> None:
        directories = [str(d.directory) for d in numbers]
        named = [name.format(*directories) for name in inputs]
        wanted = (
            dict(zip(named, inputs.values(), strict=True)) if isinstance(inputs, dict) else named
        )
        with pytest.raises(tokmill.TokmillError, match=message):
            mixed(wanted, tmp_path / "all", **settings)

    @pytest.mark.parametrize(
        ("inputs", "message"),
        [
            (5, "expected datasets, found 5"),
            ([5], "expected a directory, found 5"),
            ({"a": None}, "a=None: expected a share"),
            ({"a": True}, "a=True: expected a share"),
            ({"a": float("nan")}, "a=nan: expected a share"),
            (["a=1e999999999"], "expected a share"),
        ],
    )
    def test_inputs_of_a_wrong_type(self, tmp_path, inputs, message) -> None:
        with pytest.raises(UsageError, match=message):
            mixed(inputs, tmp_path / "all")

    @pytest.mark.parametrize("text", ["mix = 5", "[[mix]]", "[mix]\ninputs = 5"])
    def test_a_table_of_a_wrong_type(self, tmp_path, text) -> None:
        path = tmp_path / "mix.toml"
        path.write_text(text)
        with pytest.raises(UsageError, match=r"expected (a table|datasets)"):
            mixed((), tmp_path / "all", config=path)

    def test_a_source_that_would_be_repeated_without_end(self, numbers, tmp_path) -> None:
        for wanted, settings in (("1e18x", {}), (1, {"tokens": 10**30})):
            with pytest.raises(UsageError, match="more than 10,000 times"):
                mixed({numbers[0].directory: wanted}, tmp_path / "all", **settings)

    @pytest.mark.parametrize(
        "line",
        ['{"source": [1], "record": 1}', '{"source": "PATH", "record": 1e3}', "[" * 100_000,
         json.dumps({"source": "PATH", "record": 2**70})],
    )  # fmt: skip
    def test_a_bad_line_of_a_drop_list(self, numbers, tmp_path, line) -> None:
        path = tmp_path / "drop.jsonl"
        path.write_text(line.replace("PATH", numbers[0].manifest["sources"][0]["path"]))
        with pytest.raises(UsageError, match="line 1: expected"):
            mixed([numbers[0].directory], tmp_path / "all", drop=path)

    def test_a_damaged_index(self, numbers, tmp_path) -> None:
        copy = tmp_path / "copy"
        shutil.copytree(numbers[0].directory, copy)
        index = next(copy.glob("train*.idx"))
        content = bytearray(index.read_bytes())
        content[40] ^= 255
        index.chmod(0o644)
        index.write_bytes(content)
        with pytest.raises(VerifyError, match="not those of the manifest"):
            mixed([copy], tmp_path / "all", shuffle=1)

    def test_an_output_inside_an_input(self, numbers, tmp_path) -> None:
        with pytest.raises(StateError, match="is inside"):
            mixed([d.directory for d in numbers], numbers[1].directory / "all")

    def test_datasets_that_differ(self, pretrained, wide, chats, tmp_path) -> None:
        for other, message in ((wide, "--dtype|dtype"), (chats, "kind is sft")):
            with pytest.raises(tokmill.TokmillError, match=message):
                mixed([pretrained.directory, other.directory], tmp_path / "all")

    def test_ids_are_widened_on_request(self, pretrained, wide, tmp_path) -> None:
        dataset = mixed([pretrained.directory, wide.directory], tmp_path / "all", dtype="uint32")
        assert dataset[0].dtype == np.uint32
        assert dataset[0].tolist() == pretrained[0].tolist()

    def test_what_stands_at_the_output_is_not_replaced(self, numbers, tmp_path) -> None:
        inputs = [d.directory for d in numbers]
        with pytest.raises(tokmill.TokmillError, match="would be replaced"):
            mixed(inputs, numbers[0].directory)
        (tmp_path / "full").mkdir()
        (tmp_path / "full" / "a.txt").write_text("mine")
        with pytest.raises(tokmill.TokmillError, match="holds files, but no dataset or export"):
            mixed(inputs, tmp_path / "full")
        mixed(inputs, tmp_path / "all")
        with pytest.raises(tokmill.TokmillError, match="overwrite"):
            mixed(inputs, tmp_path / "all", shuffle=1)
        assert mixed(inputs, tmp_path / "all", shuffle=1, overwrite=True)
        before = (tmp_path / "all" / "manifest.json").stat().st_mtime_ns
        mixed(inputs, tmp_path / "all", shuffle=1)
        assert (tmp_path / "all" / "manifest.json").stat().st_mtime_ns == before


@pytest.mark.parametrize("settings", [{"shuffle": 7}, {"max_tokens": 100}])
def test_no_shard_is_longer_than_its_limit_but_that_of_one_document(
    make, tmp_path, monkeypatch, settings
) -> None:
    """However many tokens a shard gets at once: documents may have more, and the room less."""
    monkeypatch.setattr(part_writer, "MOST_AT_ONCE", 4)
    source = make(["a b c d e f g", "h", "i j k l m n o", "p q r s t u v"])
    longest = max(len(source[i]) for i in range(4))
    for limit in (longest - 1, 2 * longest - 1):  # the first: a document is too long for any shard
        output = tmp_path / f"mixed{limit}"
        dataset = mixed([source.directory], output, shard_tokens=limit, **settings)
        assert sorted(documents(dataset)) == sorted(documents(source))
        for row in dataset.manifest["shards"]:
            assert row["tokens"] <= limit or row["documents"] == 1


@pytest.fixture(scope="module")
def by_rule(make: Make) -> dict[str, Dataset]:
    """Two datasets that were written by other settings of output, with val."""
    texts = [f"{n} and {n}" for n in range(60)]
    return {
        "first": make(texts, shard_tokens=200, part_bytes=500, val_fraction=0.1, packing=16),
        "second": make(texts, shard_tokens=900, val_fraction=0.2, dtype="uint32"),
    }


@pytest.mark.parametrize(
    ("names", "settings", "expected"),
    [
        (["first"], {}, {"shard_tokens": 200, "val_fraction": 0.1}),
        (["first"], {"shuffle": 1}, {"shard_tokens": 1 << 29, "val_fraction": 0.1}),
        (["first"], {"shard_tokens": 70}, {"shard_tokens": 70, "val_fraction": 0.1}),
        (
            ["first", "second"],
            {"dtype": "uint32"},
            {"shard_tokens": 1 << 28, "val_fraction": 0.0, "dtype": "uint32"},
        ),
    ],
)
def test_a_manifest_states_how_the_mix_itself_was_written(
    by_rule, tmp_path, names, settings, expected
) -> None:
    inputs = [by_rule[name].directory for name in names]
    dataset = mixed(inputs, tmp_path / "mixed", **settings)
    wanted = {
        "dtype": "uint16",
        "part_bytes": 0,
        "packing": 0,
        "max_samples_per_row": 0,
        "checksum": "blake3",
        **expected,
    }
    output = dict(dataset.manifest["config"]["output"])
    assert output.pop("dir") == str(tmp_path / "mixed")
    assert output == wanted
    limit = output["shard_tokens"]
    assert all(row["tokens"] <= limit for row in dataset.manifest["shards"])


def test_linked_shards_may_be_as_long_as_those_of_any_input(make, tmp_path) -> None:
    inputs = [make(["a b c", "d e f"], shard_tokens=n).directory for n in (3, 500)]
    dataset = mixed(inputs, tmp_path / "mixed")
    assert dataset.manifest["config"]["output"]["shard_tokens"] == 500


def test_documents_that_a_mix_divided_otherwise_are_found_in_a_mix_of_it(
    by_rule, tmp_path, caplog
) -> None:
    """The first input's fraction alone would say that both datasets divide in one way."""
    inputs = [by_rule[name].directory for name in ("first", "second")]
    inner = mixed(inputs, tmp_path / "inner", dtype="uint32")
    assert inner.manifest["mix"]["val_fractions"] == [0.1, 0.2]
    caplog.clear()
    outer = mixed([inner.directory, inputs[0]], tmp_path / "outer", dtype="uint32")
    assert outer.manifest["mix"]["val_fractions"] == [0.1, 0.2]
    assert "train and val share" in caplog.text


def test_kept_fields_go_with_their_documents(tmp_path) -> None:
    datasets = []
    for name, keys in (("a", ("url", "lang")), ("b", ("lang",)), ("c", ())):
        path = tmp_path / f"{name}.jsonl"
        rows = [{"text": f"{name} {n}", "url": f"{name}/{n}", "lang": name} for n in range(700)]
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        keep = {"keep": list(keys)} if keys else {}
        datasets.append(
            tokmill.pretrain(
                path, tokenizer=TOKENIZER, output=tmp_path / name, progress=False, **keep
            )
        )
    shuffled = mixed([d.directory for d in datasets], tmp_path / "all", shuffle=4)
    assert shuffled.manifest["keep"] == ["url", "lang"]
    for number in range(0, len(shuffled), 50):
        word, n = shuffled.text(number).removesuffix("<eos>").split()
        has_url, has_lang = word == "a", word in "ab"
        expected = {"url": f"a/{n}" if has_url else None, "lang": word if has_lang else None}
        assert shuffled.meta(number) == expected
    merged = mixed([datasets[0].directory, datasets[1].directory], tmp_path / "merged")
    assert merged.meta(0) == {"url": "a/0", "lang": "a"}
    assert merged.meta(len(merged) - 1) == {"url": None, "lang": "b"}
    linked = mixed([datasets[0].directory], tmp_path / "linked")
    assert linked.meta(3) == {"url": "a/3", "lang": "a"}


def test_a_mix_of_packed_documents_can_be_packed_again(numbers, tmp_path) -> None:
    copies = []
    for number, source in enumerate(numbers):
        copies.append(tmp_path / f"{number}")
        shutil.copytree(source.directory, copies[-1])
        tokmill.pack(copies[-1], length=64)
    dataset = mixed(copies, tmp_path / "all", shuffle=2)
    assert "packs" not in dataset.manifest
    assert tokmill.pack(dataset.directory, length=64).verify().problems == ()


@pytest.fixture
def inputs(url: str, tmp_path) -> list[str]:
    urls = [f"{url}-{name}" for name in ("a", "b")]
    for place in urls:
        tokmill.pretrain(
            RECORDS, tokenizer=TOKENIZER, output=place, val_fraction=0.1, progress=False,
            part_bytes=100_000,
        )  # fmt: skip
    return urls


def test_a_merge_is_copied_by_the_store(inputs, url, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr("tokmill.place.bucket.Bucket._upload", None)
    settings = {"output": url, "progress": False}
    with pytest.raises(tokmill.TokmillError, match="only joins whole datasets"):
        tokmill.mix(inputs, shuffle=1, **settings)
    merged = tokmill.mix(inputs, **settings)
    assert tokmill.mix(inputs, **settings).manifest == merged.manifest  # it is complete
    place = open_place(url)
    manifest = json.loads(place.read("manifest.json"))
    own = [json.loads(open_place(one).read("manifest.json")) for one in inputs]
    assert manifest["totals"]["tokens"] == sum(m["totals"]["tokens"] for m in own)
    entries = place.entries()
    assert all(entries[file["name"]] == file["bytes"] for file in manifest["files"])
    tokmill.verify(url)


def test_a_merge_in_a_store_that_fails_is_the_same(inputs, url, faults) -> None:
    whole = tokmill.mix(inputs, output=f"{url}-whole", progress=False)
    faults.share = 0.05
    merged = tokmill.mix(inputs, output=url, progress=False)
    faults.share = 0.0
    assert merged.manifest["files"] == whole.manifest["files"]
    status = tokmill.status(url)
    assert (status.is_finished, status.made_by, status.parts) == (True, "a mix", 0)
    tokmill.verify(url)
    place = open_place(url)
    place.remove("manifest.json")
    place.remove(whole.manifest["shards"][0]["name"] + ".idx")
    tokmill.mix(inputs, output=url, progress=False)
    tokmill.verify(url)


def test_a_store_takes_no_files_of_a_disk_and_a_disk_takes_those_of_a_store(
    inputs, url, pretrained, tmp_path
) -> None:
    with pytest.raises(tokmill.TokmillError, match="write the mix to a disk"):
        tokmill.mix([pretrained.directory], output=url, progress=False)
    mixed = tokmill.mix(inputs, output=tmp_path / "out", progress=False)
    assert mixed.verify().problems == ()
