"""Control tokens that a renderer places are their ids; the same strings in a text stay text."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path

import pyarrow as pa
import pytest
from tokenizers import AddedToken, decoders, models, pre_tokenizers
from tokenizers import Tokenizer as Library

import tokmill
from tokmill.errors import UsageError

FILES = [
    {
        "repo": "a/b",
        "files": [["x.py", "def f():\n    return 1\n"], ["  y.py  ", "say <file_sep>"]],
    },
    {"repo": "  c", "files": [["z", " <repo_name>hello <|fim|> world"], ["", ""]]},
    {"repo": "", "files": []},
]
SEP, REPO, FIM = map(tokmill.ControlToken, ("<file_sep>", "<repo_name>", "<|fim|>"))


def repository(batch: pa.RecordBatch) -> list:
    documents = []
    for record in map(json.loads, batch["record"].to_pylist()):
        if not record["files"]:
            documents.append(None)
            continue
        pieces = [REPO, record["repo"]]
        for name, code in record["files"]:
            pieces += [SEP, name, "\n", FIM, code]
        documents.append(pieces)
    return documents


def byte_level(**options) -> Library:
    library = Library(
        models.BPE({c: i for i, c in enumerate(pre_tokenizers.ByteLevel.alphabet())}, [])
    )
    library.pre_tokenizer = pre_tokenizers.ByteLevel(**options)
    library.decoder = decoders.ByteLevel()
    return library


def metaspace(scheme: str) -> Library:
    letters = ["<unk>", *map(chr, range(32, 127)), "\n", "▁"]
    vocabulary = {c: i for i, c in enumerate(letters)}
    library = Library(models.BPE(vocabulary, [], unk_token="<unk>"))
    library.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme=scheme)
    library.decoder = decoders.Metaspace()
    return library


KINDS = {
    "byte level": lambda: byte_level(add_prefix_space=False),
    "byte level with a prefix": lambda: byte_level(add_prefix_space=True),
    "prefix before the first": lambda: metaspace("first"),
    "prefix before each": lambda: metaspace("always"),
    "no prefix": lambda: metaspace("never"),
}


@pytest.fixture
def saved(tmp_path):
    def save(library: Library, **flags) -> Path:
        library.add_special_tokens([AddedToken("<eos>", special=True)])
        library.add_special_tokens(
            [
                AddedToken(t.content, special=True, normalized=False, **flags)
                for t in (SEP, REPO, FIM)
            ]
        )
        directory = tmp_path / "tokenizer"
        directory.mkdir()
        library.save(str(directory / "tokenizer.json"))
        (directory / "tokenizer_config.json").write_text('{"eos_token": "<eos>"}')
        return directory

    return save


def expected(library: Library, pieces: list) -> list[int]:
    """Return the library's ids of texts and tokens, of which texts hold no token."""
    text = "".join(p if isinstance(p, str) else p.content for p in pieces)
    return library.encode(text, add_special_tokens=False).ids


def written(dataset) -> list[list[int]]:
    return [dataset[i].tolist() for i in range(len(dataset))]


@pytest.mark.parametrize("flags", [{}, {"lstrip": True}, {"rstrip": True}])
@pytest.mark.parametrize("kind", KINDS)
def test_ids_are_those_of_the_library_between_its_special_tokens(
    tmp_path, saved, write_rows, kind, flags
):
    library = KINDS[kind]()
    directory = saved(library, **flags)
    rows = [
        {"repo": repo, "files": files}
        for repo in ("a/b", " a", "a ", "")
        for files in ([["x", "y z"]], [[" x ", " y\n"], ["", ""]], [["  ", "k"], ["x", "  "]])
    ]
    write_rows(tmp_path / "in.jsonl", rows)
    dataset = tokmill.pretrain(
        tmp_path / "in.jsonl", tokenizer=directory, output=tmp_path / "out", renderer=repository
    )
    record = pa.record_batch({"record": [json.dumps(row) for row in rows]})
    eos = library.token_to_id("<eos>")
    wanted = [[*expected(library, pieces), eos] for pieces in repository(record)]
    assert written(dataset) == wanted
    dataset.verify()


@pytest.mark.parametrize("engine", ["reference", "gigatoken", "fastokens"])
def test_the_same_strings_in_a_text_stay_text_with_every_engine(
    tmp_path, saved, write_rows, engine
):
    library = KINDS["byte level"]()
    directory = saved(library)
    write_rows(tmp_path / "in.jsonl", FILES * 5)
    dataset = tokmill.pretrain(
        tmp_path / "in.jsonl",
        tokenizer=directory,
        output=tmp_path / "out",
        renderer=repository,
        engine=engine,
        min_tokens=10,
    )
    assert dataset.manifest["totals"]["drops"] == {"left out by the renderer": 5}
    placed = {token.content: library.token_to_id(token.content) for token in (SEP, REPO, FIM)}
    ids = written(dataset)
    assert [document.count(placed["<file_sep>"]) for document in ids] == [2, 2] * 5
    assert [document.count(placed["<repo_name>"]) for document in ids] == [1, 1] * 5
    assert [document.count(placed["<|fim|>"]) for document in ids] == [2, 2] * 5
    assert dataset.text(0).endswith("  y.py  \n<|fim|>say <file_sep><eos>")
    library.encode_special_tokens = True
    code = library.encode("say <file_sep>", add_special_tokens=False).ids
    assert ids[0][-len(code) - 1 : -1] == code


def test_texts_that_stand_side_by_side_are_one_text(tmp_path, tokenizer_dir, write_rows):
    write_rows(tmp_path / "in.jsonl", [{"text": "hello"}] * 3)

    def split(batch):
        return [["hel", "lo", " wor", "", "ld"], "hello world", [tokmill.ControlToken("<bos>")]]

    where = {"tokenizer": tokenizer_dir, "output": tmp_path / "out"}
    dataset = tokmill.pretrain(tmp_path / "in.jsonl", renderer=split, **where)
    first, second, third = written(dataset)
    assert first == second
    assert third == [1, 0]


def test_a_token_that_is_not_special_is_named_before_the_run(tmp_path, tokenizer_dir, write_rows):
    write_rows(tmp_path / "in.jsonl", [{"text": "use <tool> here"}])

    def render(batch):
        return [[tokmill.ControlToken("<tool>"), "use <tool> here"]]

    where = {"tokenizer": tokenizer_dir, "output": tmp_path / "out", "renderer": render}
    with pytest.raises(UsageError, match=r"'<tool>', which is not special in .*control_tokens = "):
        tokmill.pretrain(tmp_path / "in.jsonl", **where)
    render.control_tokens = ["<tool>"]
    dataset = tokmill.pretrain(tmp_path / "in.jsonl", overwrite=True, **where)
    tool = Library.from_file(str(tokenizer_dir / "tokenizer.json")).token_to_id("<tool>")
    assert written(dataset)[0].count(tool) == 1
    assert written(dataset)[0][0] == tool


@pytest.mark.parametrize(
    ("returned", "named", "said"),
    [
        ([[tokmill.ControlToken("<none>"), "a"]], (), "'<none>', which is no added token of"),
        (["a"], ["<none>"], "its control token '<none>' is no added token of"),
        (["a"], "<bos>", "expected its attribute control_tokens to be a list of strings"),
        ([["a", 7]], (), "expected None, text or a list of text and tokmill.ControlToken for each"),
        ([b"a"], (), "expected None, text or a list of text and tokmill.ControlToken for each row"),
        (["a", "b"], (), "expected 1 string, one for each row, found 2"),
        (["\udc80"], (), "expected text of whole characters"),
    ],
)
def test_a_wrong_value_or_an_unknown_token_is_one_line(
    tmp_path, tokenizer_dir, write_rows, returned, named, said
):
    write_rows(tmp_path / "in.jsonl", [{"text": "hello"}])

    def render(batch):
        return returned

    render.control_tokens = named
    with pytest.raises(UsageError, match=said) as caught:
        tokmill.pretrain(
            tmp_path / "in.jsonl", tokenizer=tokenizer_dir, output=tmp_path / "out", renderer=render
        )
    assert "\n" not in str(caught.value)


def test_a_text_with_a_string_can_be_rejected_and_an_empty_document_is_dropped(
    tmp_path, tokenizer_dir, write_rows
):
    write_rows(tmp_path / "in.jsonl", [{"text": f"{i}"} for i in range(3)])

    def render(batch):
        bos = tokmill.ControlToken("<bos>")
        return [[bos, "hello"], [bos, "a <bos> b"], ["", ""]]

    dataset = tokmill.pretrain(
        tmp_path / "in.jsonl",
        tokenizer=tokenizer_dir,
        output=tmp_path / "out",
        renderer=render,
        control_tokens_in_text="reject",
        max_reject_fraction=1,
    )
    totals = dataset.manifest["totals"]
    assert totals["rejects"] == {"control token in text": 1}
    assert totals["drops"] == {"empty": 1}
    assert dataset.text(0) == "<bos>hello<eos>"


def test_workers_import_a_renderer_of_a_module(tmp_path, tokenizer_dir, write_rows, monkeypatch):
    code = (
        "import tokmill\n"
        "def render(batch):\n"
        "    tool = tokmill.ControlToken('<tool>')\n"
        "    return [[tool, text] for text in batch['text'].to_pylist()]\n"
        "import pyarrow as pa\n"
        "render.schema = pa.schema([('text', pa.string())])\n"
        "render.control_tokens = ['<tool>']\n"
    )
    (tmp_path / "place_tool.py").write_text(code)
    monkeypatch.chdir(tmp_path)
    write_rows(tmp_path / "in.jsonl", [{"text": f"hello {i}"} for i in range(60)])
    found = [
        written(
            tokmill.pretrain(
                "in.jsonl",
                tokenizer=tokenizer_dir,
                output=f"out{workers}",
                renderer="place_tool:render",
                part_bytes=300,
                workers=workers,
            )
        )
        for workers in (1, 2)
    ]
    assert found[0] == found[1]
    assert all(first[0] == second[0] for first, second in pairwise(found[0]))
