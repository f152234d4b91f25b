"""Layouts without an index of their own kind: OLMo-core, torchtitan, llm.c and litdata."""

from __future__ import annotations

import gzip
import json
import struct
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tokmill
from tests.run.importing.conftest import EOS, ids
from tokmill.api.dataset import Dataset
from tokmill.errors import TokenizerError, TokmillError, UsageError, VerifyError
from tokmill.sources import token_files
from tokmill.tables import TRAINERS, import_name
from tokmill.trainers.export import export
from tokmill.trainers.options import ExportOptions, export_options

A, B, C = [5, 6, EOS], [7, EOS], [8, 9, 10, 11, EOS]
STREAM = [*A, *B, *C]


def masks(dataset: Dataset) -> list[list[int]]:
    return [dataset.mask(i).tolist() for i in range(len(dataset))]


def write_ids(path: Path, tokens: Sequence[int], dtype: str = "<u2") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(np.array(tokens, dtype).tobytes())
    return path


def write_spans(path: Path, spans: Sequence[Sequence[Any]]) -> None:
    text = "".join(",".join(map(str, span)) + "\n" for span in spans)
    path.write_bytes(gzip.compress(text.encode()))


def write_llm_c(path: Path, tokens: Sequence[int], magic: int = 20240520, **changed: int) -> Path:
    header = {"version": 1 if magic == 20240520 else 7, "n": len(tokens)} | changed
    body = np.array(tokens, "<u2" if magic == 20240520 else "<u4").tobytes()
    path.write_bytes(struct.pack("<3i", magic, *header.values()).ljust(1024, b"\0") + body)
    return path


def write_llm_c_set(folder: Path, bodies: Sequence[Sequence[int]]) -> Path:
    folder.mkdir()
    for number, body in enumerate(bodies):
        write_llm_c(folder / f"set_{number:06d}.bin", body)
    return folder


def write_litdata(
    folder: Path, chunks: Sequence[Sequence[Sequence[int]]], kind: str = "no_header_numpy:5",
    dtype: str = "<u2", **config: Any,
) -> Path:  # fmt: skip
    """Write chunks of items, as litdata's `optimize` does."""
    folder.mkdir(parents=True, exist_ok=True)
    rows = []
    for number, items in enumerate(chunks):
        bodies = [np.array(item, dtype).tobytes() for item in items]
        begin = 4 * (len(items) + 2)
        ends = np.cumsum([begin, *map(len, bodies)]).astype("<u4")
        data = struct.pack("<I", len(items)) + ends.tobytes() + b"".join(bodies)
        name = f"chunk-0-{number}.bin"
        (folder / name).write_bytes(data)
        n_tokens = sum(map(len, items))
        rows.append(
            {"chunk_bytes": len(data), "chunk_size": len(items), "dim": n_tokens, "filename": name}
        )
    index = {"chunks": rows, "config": {"data_format": [kind], "compression": None} | config}
    (folder / "index.json").write_text(json.dumps(index))
    return folder


def write_torchtitan(
    folder: Path, bodies: Sequence[Sequence[int]], offsets: Sequence[int], dtype: str = "<u2"
) -> Path:
    for number, tokens in enumerate(bodies):
        write_ids(folder / f"tokens-{number:05d}.bin", tokens, dtype)
    np.save(folder / "document_offsets.npy", np.array(offsets))
    return folder


# What an export writes comes back.

EXPORTS = [
    ("olmo-core", {}), ("maxtext", {}), ("torchtitan", {}), ("grain", {"merge": True}),
    ("llm.c", {}), ("llm.c", {"file_tokens": 3000}),
    ("llm.c", {"eos": "last", "file_tokens": 3000}),
    ("modded-nanogpt", {}), ("litdata", {"block_tokens": 512, "file_tokens": 5000}), ("litgpt", {}),
    ("megatron", {}), ("automodel", {}), ("datatrove", {}), ("nanotron", {}), ("nanogpt", {}),
]  # fmt: skip


@pytest.mark.parametrize(("trainer", "options"), EXPORTS)
def test_documents_come_back_from_every_layout(
    trainer: str, options, pretrained, single, bring, tmp_path
) -> None:
    given = single if trainer == "nanogpt" else pretrained
    export(given.directory, trainer, tmp_path / "e", export_options(options))
    made = bring(tmp_path / "e", trainer, like=given)
    assert made.splits == given.splits
    for split in given.splits:
        assert ids(made.split(split)) == ids(given.split(split))
    assert made.manifest["dtype"] == given.manifest["dtype"]


@pytest.mark.parametrize("trainer", ["olmo-core", "torchtitan", "datatrove"])
def test_masks_come_back(trainer: str, chats, bring, tmp_path) -> None:
    export(chats.directory, trainer, tmp_path / "e", ExportOptions())
    made = bring(tmp_path / "e", trainer, like=chats)
    for split in chats.splits:
        assert ids(made.split(split)) == ids(chats.split(split))
        assert masks(made.split(split)) == masks(chats.split(split))


def test_every_trainer_of_export_has_a_name_for_import() -> None:
    from tokmill.run.rows import ROW_FORMATS
    from tokmill.sources.token_layouts import IMPORTERS
    from tokmill.tables import IMPORTS

    assert set(IMPORTS) == {*IMPORTERS, *ROW_FORMATS}
    assert {import_name(name) for name in TRAINERS.rows} <= set(IMPORTS)
    assert import_name("LLaMA-Factory") == "datasets"
    assert import_name("unknown") == "unknown"


# Streams: a document belongs to the file in which it begins.

CUTS: dict[str, list[list[int]]] = {
    "in one file": [STREAM],
    "at documents": [[*A, *B], C],
    "inside documents": [[5], [6, EOS, 7], [EOS, 8, 9, 10, 11, EOS]],
    "a document over several files": [[*A, *B, 8], [9], [10], [11, EOS]],
    "a document that ends with a file": [[*A, *B, 8, 9], [10, 11, EOS]],
    "a file without tokens": [[*A, 7], [], [EOS, *C]],
    "one token each": [[token] for token in STREAM],
    "without the last eos": [[*A, 7], [EOS, *C[:-1]]],
}


@pytest.mark.parametrize("cut", CUTS)
@pytest.mark.usefixtures("block_tokens")
def test_documents_run_on_from_file_to_file(cut: str, bring, tmp_path) -> None:
    folder = write_litdata(tmp_path / "chunks", [[body] for body in CUTS[cut]])
    assert ids(bring(folder, "litdata")) == [A, B, C]
    folder = write_llm_c_set(tmp_path / "in", CUTS[cut])
    assert ids(bring(folder, "llm.c", output="c")) == [A, B, C]


def test_workers_that_share_a_stream_change_nothing(bring, tmp_path) -> None:
    folder = write_litdata(tmp_path / "in", [[[token]] for token in STREAM])
    made = bring(folder, "litdata", workers=2)
    assert made.manifest["run"]["workers"] == 2
    assert ids(made) == [A, B, C]


@pytest.mark.usefixtures("block_tokens")
@pytest.mark.parametrize("cut", CUTS)
def test_eos_before_documents_becomes_eos_behind_them(cut: str, bring, tmp_path, caplog) -> None:
    bodies = [list(body) for body in CUTS[cut]]
    bodies[0].insert(0, EOS)
    if bodies[-1][-1] == EOS:
        bodies[-1].pop()
    folder = write_llm_c_set(tmp_path / "in", bodies)
    assert ids(bring(folder, "llm.c")) == [A, B, C]
    assert "boundaries are those of eos" in caplog.text
    assert "its index leaves" not in caplog.text


def test_files_of_a_set_are_in_the_order_of_their_numbers(bring, tmp_path) -> None:
    for number, body in ((2, [5, 6]), (10, [EOS, 7, EOS]), (9, [])):
        write_llm_c(tmp_path / f"fine_train_{number}.bin", body)
    write_llm_c(tmp_path / "fine_val_0.bin", [EOS, 9])
    made = bring(tmp_path, "llm.c")
    assert ids(made.split("train")) == [[5, 6, EOS], [7, EOS]]
    assert ids(made.split("val")) == [[9, EOS]]


def test_files_that_are_named_one_by_one_are_one_stream(bring, tmp_path) -> None:
    paths = [
        write_llm_c(tmp_path / f"set_{number}.bin", body)
        for number, body in enumerate([[EOS, 5], [6, EOS, 7], [EOS, 8]])
    ]
    assert ids(bring(paths, "llm.c")) == [[5, 6, EOS], [7, EOS], [8, EOS]]
    assert ids(bring(paths[1], "llm.c", output="one")) == [[7, EOS]]


def test_items_of_litgpt_are_divided_at_eos(bring, tmp_path) -> None:
    folder = write_litdata(tmp_path / "in", [[A, B], [C]], "no_header_tensor:16", "<i4")
    assert ids(bring(folder, "litgpt")) == [A, B, C]


def test_llama_3_files_have_wide_ids(bring, tmp_path) -> None:
    write_llm_c(tmp_path / "set_0.bin", [EOS, 289, 5], magic=20240801)
    made = bring(tmp_path, "llm.c")
    assert ids(made) == [[289, 5, EOS]]
    assert made.manifest["dtype"] == "uint32"


def test_a_bad_id_is_named_by_its_place_in_the_file(bring, tmp_path) -> None:
    write_llm_c(tmp_path / "set_0.bin", [EOS, 5])
    write_llm_c(tmp_path / "set_1.bin", [6, EOS, 7, 300, EOS])
    with pytest.raises(TokenizerError, match=r"set_1\.bin: token 3 is 300"):
        bring(tmp_path, "llm.c")


def test_a_stream_with_another_eos_is_not_held_in_memory(bring, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(token_files, "BLOCK_TOKENS", 4)
    monkeypatch.setattr(token_files, "_MOST_HELD", 10)
    write_litdata(tmp_path / "in", [[[5] * 9]] * 4)
    with pytest.raises(VerifyError, match=r"a document of more than 10 tokens: .* eos_token"):
        bring(tmp_path / "in", "litdata")


def test_a_next_file_that_changes_ends_the_import(bring, tmp_path, monkeypatch) -> None:
    write_litdata(tmp_path / "in", [[[5]], [[6, EOS]]])
    plain = token_files.TokenFile.documents_at_eos

    def change(self: Any, eos_id: int) -> Any:
        (tmp_path / "in" / "chunk-0-1.bin").write_bytes(b"another size")
        return plain(self, eos_id)

    monkeypatch.setattr(token_files.TokenFile, "documents_at_eos", change)
    with pytest.raises(TokmillError, match=r"chunk-0-1\.bin"):
        bring(tmp_path / "in", "litdata", workers=1)


# OLMo-core.


def test_documents_of_olmo_core_are_those_of_its_spans(bring, tmp_path) -> None:
    write_ids(tmp_path / "in" / "part.npy", [5, EOS, 6, EOS, 7, EOS])
    write_spans(tmp_path / "in" / "part.csv.gz", [(0, 4, "a", "s", 1), (4, 6, "b", "s", 2)])
    assert ids(bring(tmp_path / "in", "olmo-core")) == [[5, EOS, 6, EOS], [7, EOS]]


def test_without_spans_eos_ends_documents_of_olmo_core(bring, tmp_path, caplog) -> None:
    write_ids(tmp_path / "in" / "part.npy", STREAM * 9, "<u4")
    with pytest.raises(UsageError, match=r"every second id is below 4.*dtype uint32 reads it"):
        bring(tmp_path / "in", "olmo-core")
    assert ids(bring(tmp_path / "in", "olmo-core", dtype="uint32")) == [A, B, C] * 9
    assert "boundaries are those of eos" in caplog.text


@pytest.mark.parametrize("dtype", ["u1", "<u2", "<u4", "<u8"])
def test_the_spans_of_olmo_core_tell_the_type_of_ids(dtype: str, bring, tmp_path) -> None:
    write_ids(tmp_path / "in" / "part.npy", STREAM, dtype)
    write_spans(tmp_path / "in" / "part.csv.gz", [(0, 3), (3, 5), (5, 10)])
    assert ids(bring(tmp_path / "in", "olmo-core")) == [A, B, C]


def test_masks_of_open_instruct_stand_beside_the_ids(bring, tmp_path) -> None:
    write_ids(tmp_path / "in" / "token_ids_part_0000.npy", [3, 4, 5, 6, 7], "<u4")
    write_ids(tmp_path / "in" / "labels_mask_part_0000.npy", [0, 1, 1, 0, 1], "u1")
    write_spans(tmp_path / "in" / "token_ids_part_0000.csv.gz", [(0, 3), (3, 5)])
    made = bring(tmp_path / "in", "olmo-core")
    assert ids(made) == [[3, 4, 5], [6, 7]]
    assert masks(made) == [[0, 1, 1], [0, 1]]


def test_tokens_behind_the_last_span_are_left_out_if_the_type_is_named(
    bring, tmp_path, caplog
) -> None:
    write_ids(tmp_path / "in" / "part.npy", [*STREAM, 9])
    write_spans(tmp_path / "in" / "part.csv.gz", [(0, 3), (5, 10)])
    with pytest.raises(VerifyError, match=r"22 bytes for the 10 tokens of part\.csv\.gz"):
        bring(tmp_path / "in", "olmo-core")
    assert ids(bring(tmp_path / "in", "olmo-core", dtype="uint16")) == [A, C]
    assert "its index leaves 6 bytes out" in caplog.text


# torchtitan.


@pytest.mark.usefixtures("block_tokens")
def test_documents_of_torchtitan_stand_in_several_files(bring, tmp_path) -> None:
    folder = write_torchtitan(tmp_path / "in", [[*A, *B], C], [0, 3, 5, 5, 10])
    made = bring(folder, "torchtitan")
    assert ids(made) == [A, B, C]
    assert made.manifest["totals"]["drops"] == {"no token": 1}


def test_the_single_file_of_torchtitan_s_own_example_is_read(bring, tmp_path) -> None:
    write_ids(tmp_path / "in" / "tokens.bin", STREAM, "<u4")
    np.save(tmp_path / "in" / "document_offsets.npy", np.array([0, 3, 5, 10], "<u8"))
    assert ids(bring(tmp_path / "in", "torchtitan")) == [A, B, C]
    assert ids(bring(tmp_path / "in" / "tokens.bin", "torchtitan", output="file")) == [A, B, C]


# Files of another layout, and damage.

Damage = Callable[[Path], Any]


def _llm_c(**changed: Any) -> Damage:
    return lambda path: write_llm_c(path / "set_0.bin", STREAM, **changed)


def _cut(damage: Damage, name: str, n: int = 1) -> Damage:
    def cut(path: Path) -> None:
        damage(path)
        data = (path / name).read_bytes()
        (path / name).write_bytes(data[:-n])

    return cut


def _litdata(**config: Any) -> Damage:
    return lambda path: write_litdata(path, [[A], [B]], **config)


def _litdata_index(change: Callable[[dict[str, Any]], Any]) -> Damage:
    def damage(path: Path) -> None:
        write_litdata(path, [[A], [B]])
        index = json.loads((path / "index.json").read_text())
        change(index)
        (path / "index.json").write_text(json.dumps(index))

    return damage


def _torchtitan(offsets: Sequence[int], **options: Any) -> Damage:
    return lambda path: write_torchtitan(path, [A, B], offsets, **options)


def _olmo(spans: Sequence[Sequence[Any]]) -> Damage:
    def damage(path: Path) -> None:
        write_ids(path / "part.npy", STREAM)
        write_spans(path / "part.csv.gz", spans)

    return damage


def _olmo_mask(path: Path) -> None:
    write_ids(path / "token_ids_part_0.npy", STREAM)
    write_ids(path / "labels_mask_part_0.npy", [1] * 9, "u1")


def _text(path: Path) -> None:
    (path / "index.json").write_text("[1, 2")


HOSTILE: dict[str, tuple[str, Damage, type[TokmillError], str]] = {
    "no file of llm.c": ("llm.c", lambda path: None, UsageError, "found nothing"),
    "another magic": (
        "llm.c", lambda path: write_ids(path / "x.bin", [5] * 600), UsageError,
        "begins with 327685, expected 20240520 or 20240801.*--from nanogpt",
    ),
    "shorter than a header": (
        "llm.c", lambda path: write_ids(path / "x.bin", [5]), UsageError, "a header of 1,024 bytes",
    ),
    "another version": ("llm.c", _llm_c(version=2), UsageError, "version 2, expected 1"),
    "a header of more tokens": ("llm.c", _llm_c(n=11), VerifyError, "1,044 bytes, expected 1,046"),
    "a negative number": ("llm.c", _llm_c(n=-1), VerifyError, "1,044 bytes, expected 1,022"),
    "a cut file": ("llm.c", _cut(_llm_c(), "set_0.bin"), VerifyError, "1,043 bytes, expected"),
    "a set of two types": (
        "llm.c",
        lambda path: (
            write_llm_c(path / "set_0.bin", A), write_llm_c(path / "set_1.bin", B, magic=20240801)
        ),
        UsageError, r"set_1\.bin: holds tokens of another type than set_0\.bin",
    ),
    "no index": ("litdata", lambda path: None, UsageError, r"a directory with index\.json"),
    "no JSON": ("litdata", _text, VerifyError, r"index\.json: no index of litdata"),
    "a list": (
        "litdata", lambda path: (path / "index.json").write_text("[]"), VerifyError, "no index of",
    ),
    "compression": (
        "litdata", _litdata(compression="zstd"), UsageError, "compression 'zstd' are not read",
    ),
    "encryption": (
        "litdata", _litdata(encryption={"algorithm": "fernet"}), UsageError, "with encryption",
    ),
    "texts": ("litdata", _litdata(kind="str"), UsageError, "holds str, expected one array of ids"),
    "floats": ("litdata", _litdata(kind="no_header_numpy:9"), UsageError, "expected one array"),
    "images and ids": (
        "litdata", _litdata(data_format=["jpeg", "int"]), UsageError, "holds jpeg, int, expected",
    ),
    "a cut chunk": (
        "litdata", _cut(_litdata(), "chunk-0-1.bin"), VerifyError,
        r"chunk-0-1\.bin: 15 bytes of 1 item, expected 16 of 1",
    ),
    "a chunk that is gone": (
        "litdata", _litdata_index(lambda index: index["chunks"][1].update(filename="gone.bin")),
        VerifyError, r"gone\.bin: index\.json lists it",
    ),
    "a chunk elsewhere": (
        "litdata", _litdata_index(lambda index: index["chunks"][1].update(filename="../x.bin")),
        VerifyError, r"no index of litdata \(a chunk '\.\./x\.bin'\)",
    ),
    "a negative number of items": (
        "litdata", _litdata_index(lambda index: index["chunks"][1].update(chunk_size=-2)),
        VerifyError, "expected a number, found -2",
    ),
    "another number of items": (
        "litdata", _litdata_index(lambda index: index["chunks"][1].update(chunk_size=2, dim=0)),
        VerifyError, "16 bytes of 1 item, expected 16 of 2",
    ),
    "no offsets": (
        "torchtitan", lambda path: write_ids(path / "tokens.bin", A), UsageError, "document_of",
    ),
    "no tokens": (
        "torchtitan", lambda path: np.save(path / "document_offsets.npy", [0]), UsageError,
        r"tokens\*\.bin",
    ),
    "offsets of floats": ("torchtitan", _torchtitan([0.0, 5.0]), VerifyError, "offsets of docu"),
    "offsets of two axes": ("torchtitan", _torchtitan([[0, 5]]), VerifyError, "offsets of docu"),
    "offsets that begin late": ("torchtitan", _torchtitan([1, 5]), VerifyError, "begins at 1"),
    "offsets that fall": (
        "torchtitan",
        lambda path: write_torchtitan(path, [[*A, *B]], [0, 3, 2, 5]),
        VerifyError, "the ends of documents do not rise",
    ),
    "offsets of more tokens": ("torchtitan", _torchtitan([0, 3, 6]), VerifyError, "10 bytes in 2"),
    "a document in two files": (
        "torchtitan", _torchtitan([0, 2, 5]), VerifyError, "a document must stand in one file",
    ),
    "cut offsets": (
        "torchtitan", _cut(_torchtitan([0, 3, 5]), "document_offsets.npy", 8), VerifyError,
        "2 offsets, expected 3",
    ),
    "offsets that are no array": (
        "torchtitan", _cut(_torchtitan([0, 3, 5]), "document_offsets.npy", 140), VerifyError,
        r"document_offsets\.npy",
    ),
    "an array of NumPy": (
        "olmo-core", lambda path: np.save(path / "part.npy", np.array(STREAM, "<u2")), UsageError,
        "begins with a header of NumPy",
    ),
    "spans of more tokens": ("olmo-core", _olmo([(0, 11)]), VerifyError, "20 bytes for the 11 tok"),
    "a span that ends early": ("olmo-core", _olmo([(3, 2), (0, 10)]), VerifyError, "ends before"),
    "a negative span": ("olmo-core", _olmo([(-1, 2), (0, 10)]), VerifyError, "ends before"),
    "spans of words": ("olmo-core", _olmo([("a", "b")]), VerifyError, "no start,end of documents"),
    "one column": ("olmo-core", _olmo([(3,)]), VerifyError, r"part\.csv\.gz: no start,end"),
    "cut spans": (
        "olmo-core", _cut(_olmo([(0, 10)]), "part.csv.gz", 4), VerifyError, r"part\.csv\.gz: ",
    ),
    "no gzip": (
        "olmo-core",
        lambda path: (_olmo([])(path), (path / "part.csv.gz").write_bytes(b"0,10\n")),
        VerifyError, r"part\.csv\.gz: ",
    ),
    "a mask of another length": ("olmo-core", _olmo_mask, VerifyError, "9 bytes, expected one for"),
    "half a token": (
        "olmo-core", lambda path: (path / "part.npy").write_bytes(b"abc"), UsageError, "no whole",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", HOSTILE)
def test_other_and_damaged_files_are_refused_in_one_line(case: str, bring, tmp_path) -> None:
    trainer, damage, error, message = HOSTILE[case]
    (tmp_path / "in").mkdir()
    damage(tmp_path / "in")
    with pytest.raises(error, match=message) as raised:
        bring(tmp_path / "in", trainer)
    assert "\n" not in str(raised.value)


def test_dtype_is_for_files_that_do_not_say_it(bring, tmp_path) -> None:
    write_llm_c(tmp_path / "set_0.bin", STREAM)
    with pytest.raises(UsageError, match="the files name the type of ids"):
        bring(tmp_path, "llm.c", dtype="uint16")


def test_a_changed_index_ends_a_planned_import(tokenizer_dir, tmp_path) -> None:
    from click.testing import CliRunner

    from tokmill.cli.main import cli

    write_litdata(tmp_path / "in", [[A], [B]])
    out = str(tmp_path / "out")
    arguments = [tmp_path / "in", "--from", "litdata", "-t", tokenizer_dir, "-o", out]
    made = CliRunner().invoke(cli, ["import", *map(str, arguments), "--write-plan"])
    assert made.exit_code == 0, made.output
    index = tmp_path / "in" / "index.json"
    index.write_text(index.read_text() + " ")
    result = CliRunner().invoke(cli, ["run-part", out, "--index", "0", "--of", "1"])
    assert "a file beside it was changed since the run was planned" in str(result.exception)


def test_trainers_are_named_as_people_name_them(tokenizer_dir, tmp_path) -> None:
    write_litdata(tmp_path / "in", [[A]])
    made = tokmill.import_dataset(
        tmp_path / "in", trainer="Lit-GPT", output=tmp_path / "out", tokenizer=tokenizer_dir
    )
    assert ids(made) == [A]
    with pytest.raises(UsageError, match=r"trainer: expected one of megatron.*found 'vllm'"):
        tokmill.import_dataset(
            tmp_path / "in", trainer="vllm", output=tmp_path / "x", tokenizer=tokenizer_dir
        )
