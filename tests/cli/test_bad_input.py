"""A user's mistakes and broken inputs, through the command line as a user sees it.

Each gives one clear line and the documented exit code, leaves nothing half-written, and the same
command completes once the cause is gone.
"""

from __future__ import annotations

import gzip
import io
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tokmill.place.lock import locked

GOOD = [{"title": f"t{i}", "summary": "hello world", "sections": []} for i in range(40)]


@pytest.fixture
def good(tmp_path: Path) -> Path:
    return write_lines(tmp_path / "good.jsonl", GOOD)


def write_lines(path: Path, rows: Sequence[dict[str, Any] | bytes]) -> Path:
    lines = [row if isinstance(row, bytes) else json.dumps(row).encode() for row in rows]
    path.write_bytes(b"".join(line + b"\n" for line in lines))
    return path


def nothing_half_written(directory: Path) -> bool:
    """Return whether there is no manifest, and no temporary file but those of checkpoints."""
    named: set[str] = set()
    for path in directory.glob("parts/.*.checkpoint"):
        step = json.loads(path.read_bytes())["step"]
        named |= {file["name"] for shard in step["shards"] for file in shard["files"]}
        named |= {step["rejects"]["name"]} if step["rejects"] else set()
    left = {path.relative_to(directory).as_posix() for path in directory.rglob("*.tmp")}
    return not (directory / "manifest.json").exists() and left == named


def manifest(directory: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((directory / "manifest.json").read_bytes())
    return found


def data_files(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(directory.glob("*-*.*"))}


# Paths and options


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("nope.jsonl", "nope.jsonl: no such file or directory"),
        ("nope", "nope: no such file or directory"),
        ("x*.jsonl", "x*.jsonl: no file matches"),
        ("x[ab].jsonl", "x[ab].jsonl: no file matches"),
        ("notes.doc", "notes.doc: expected a file ending in .jsonl"),
        ("bare", "bare: no file ending in .jsonl"),
    ],
)
def test_an_input_that_is_not_there_is_a_usage_error(pretrain, tmp_path, monkeypatch, given, said):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "notes.doc").write_text("x")
    (tmp_path / "bare").mkdir()
    outcome = pretrain(given)
    assert outcome.code == 2
    assert outcome.error.startswith(said)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--val-fraction", "2"), "--val-fraction (output.val_fraction): expected between 0.0"),
        (("--val-fraction", "nan"), "(output.val_fraction): expected between 0.0 and 1.0, found"),
        (("--shard-tokens", "-1"), "--shard-tokens (output.shard_tokens): expected a number such"),
        (("--max-record-bytes", "2GiB"), "--max-record-bytes (input.max_record_bytes): expected"),
        (("--renderer", "template"), "renderer template needs a --template"),
        (("--renderer", "template", "--template", "{"), "template '{': "),
        (("--renderer", "template", "--template", "{}"), "expected plain named fields"),
        (("--renderer", "template", "--template", "{nope}"), "wants the keys nope; the first"),
        (("--renderer", "text"), "renderer text wants the keys text; the first records have title"),
    ],
)
def test_a_setting_that_cannot_be_is_a_usage_error(pretrain, good, tmp_path, arguments, said):
    outcome = pretrain(good, *arguments)
    assert outcome.code == 2
    assert said in outcome.error
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (b"[foo]\n", "unknown section [foo]; known: input, "),
        (b"[run]\nworker = 1\n", "run.worker: unknown key; did you mean workers? known: engine, "),
        (b"[run]\nworkers = 'two'\n", "run.workers: expected int, found str ('two')"),
        (b"[run]\nworkers = true\n", "run.workers: expected int, found bool (True)"),
        (b"workers = 2\n", "unknown section [workers]"),
        (b"[input]\npaths = 'a.jsonl'\n", "input.paths: expected a list of strings, found str"),
        (b"[limits]\non_error = 'x'\n", "limits.on_error: expected one of skip, fail; found 'x'"),
        (b"[run]\nblock_bytes = '8 potatoes'\n", "run.block_bytes: expected a size such as 8MiB"),
        (
            b"[run]\nblock_bytes = '1 GiB'\n",
            "run.block_bytes: expected between 1 and 268435456, found 1073741824",
        ),
        (b"run: 1\n", "not valid TOML"),
        (b"#\xff\n", "not valid TOML"),
    ],
)
def test_a_wrong_configuration_file_is_a_usage_error_that_names_file_and_key(
    pretrain, good, tmp_path, text, said
):
    (tmp_path / "run.toml").write_bytes(text)
    outcome = pretrain(good, "--config", tmp_path / "run.toml")
    assert outcome.code == 2
    assert outcome.error.startswith(f"{tmp_path / 'run.toml'}: ")
    assert said in outcome.error


def test_a_configuration_file_that_is_not_there_is_a_usage_error(pretrain, good, tmp_path):
    outcome = pretrain(good, "--config", tmp_path / "run.toml")
    assert (outcome.code, outcome.error) == (
        2,
        f"{tmp_path / 'run.toml'}: no such configuration file",
    )


CHATS = Path(__file__).parents[2] / "data_samples" / "sft" / "chats.jsonl"


@pytest.mark.parametrize(
    "words",
    [
        "pretrain {good} --config {pipe}",
        "pretrain {good} --tokenizer {pipe}",
        "pretrain {good} --tokenizer {folder}",
        "sft {chats} --tokenizer {tokenizer} --template {pipe}",
        "memory --model {weights}",
        "memory --model llama-3-8b --deepspeed {pipe}",
    ],
)
def test_a_pipe_given_as_a_file_of_settings_is_a_usage_error(good, tokenizer_dir, tmp_path, words):
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "tokenizer.json").write_bytes(
        (tokenizer_dir / "tokenizer.json").read_bytes()
    )
    os.mkfifo(tmp_path / "folder" / "tokenizer_config.json")
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "weights").mkdir()
    os.mkfifo(tmp_path / "weights" / "a.safetensors")
    places = {name: tmp_path / name for name in ("pipe", "folder", "weights")}
    files = {"good": good, "chats": CHATS, "tokenizer": tokenizer_dir}
    given = words.format(**files, **places).split()
    given += ["--output", str(tmp_path / "out")] if given[0] != "memory" else []
    done = subprocess.run(
        [sys.executable, "-m", "tokmill", *given], capture_output=True, text=True, timeout=30
    )
    assert done.returncode == 2
    (line,) = (line for line in done.stderr.splitlines() if line.startswith("error: "))
    assert ": expected a regular file, found a pipe" in line
    assert line.startswith(f"error: {tmp_path}")


def test_a_variable_that_cannot_be_is_a_usage_error_that_names_it(pretrain, good, monkeypatch):
    monkeypatch.setenv("TOKMILL_PART_BYTES", "garbage")
    outcome = pretrain(good)
    assert outcome.code == 2
    where = "TOKMILL_PART_BYTES (output.part_bytes)"
    said = f"{where}: expected a size such as 8MiB or 1GB, found 'garbage'"
    assert outcome.err.endswith(f"error: {said}\n")


@pytest.mark.parametrize("missing", ["input", "output", "tokenizer"])
def test_what_a_run_cannot_do_without_is_asked_for_by_name(
    tokmill, good, tokenizer_dir, tmp_path, missing
):
    given = {
        "input": (str(good),),
        "output": ("-o", str(tmp_path / "out")),
        "tokenizer": ("-t", str(tokenizer_dir)),
    }
    given.pop(missing)
    outcome = tokmill("pretrain", *(word for words in given.values() for word in words))
    assert outcome.code == 2
    assert outcome.error.startswith(f"no {missing}: ")


# Tokenizers


@pytest.mark.parametrize(
    ("files", "said"),
    [
        ({}, "no tokenizer here; looked for tokenizer.json, "),
        ({"tokenizer.json": ""}, "tokenizer.json: not valid JSON"),
        ({"tokenizer.json": "[]"}, "tokenizer.json: not a tokenizer.json"),
        ({"tokenizer.json": '{"model": {}}'}, "the tokenizers library refuses it"),
        ({"tokenizer_config.json": "{bad"}, "tokenizer_config.json: not valid JSON"),
        (
            {"tokenizer_config.json": '{"eos_token": "<nope>"}'},
            "names eos '<nope>', which is not in the vocabulary",
        ),
        (
            {
                "tokenizer_config.json": json.dumps(
                    {
                        "eos_token": "<|im_start|>",
                        "chat_template": "{% for m in messages %}{{ m }}<|im_start|>{% endfor %}",
                    }
                )
            },
            "eos is ambiguous",
        ),
    ],
)
def test_a_tokenizer_that_does_not_load_or_names_no_clear_eos_is_refused(
    tokmill, good, tokenizer_dir, tmp_path, files, said
):
    broken = tmp_path / "broken"
    broken.mkdir()
    if files and "tokenizer.json" not in files:
        (broken / "tokenizer.json").write_bytes((tokenizer_dir / "tokenizer.json").read_bytes())
    for name, text in files.items():
        (broken / name).write_text(text)
    outcome = tokmill("pretrain", good, "-t", broken, "-o", tmp_path / "out")
    assert outcome.code == 4
    assert said in outcome.error
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("name", ["<zzz>", "99999999", "-1"])
def test_an_eos_that_the_vocabulary_lacks_is_refused(pretrain, good, name):
    outcome = pretrain(good, f"--eos-token={name}")
    assert outcome.code == 4
    assert "--eos-token names" in outcome.error


def test_ids_above_65535_do_not_become_uint16(tokmill, good, tokenizer_dir, tmp_path):
    big = tmp_path / "big"
    big.mkdir()
    library = json.loads((tokenizer_dir / "tokenizer.json").read_bytes())
    vocab = library["model"]["vocab"]
    vocab |= {f"zz{i}": i for i in range(len(vocab), 70_000)}
    added = [token for token in library["added_tokens"] if token["content"] != "<tool>"]
    (big / "tokenizer.json").write_text(json.dumps({**library, "added_tokens": added}))
    command = ("pretrain", good, "-t", big, "-o", tmp_path / "out", "--eos-token", "<eos>")
    outcome = tokmill(*command, "--engine", "reference", "--dtype", "uint16")
    assert outcome.code == 4
    assert "uint16 holds ids up to 65535, this tokenizer can emit id 69999" in outcome.error
    assert tokmill(*command, "--engine", "reference").code == 0
    assert manifest(tmp_path / "out")["dtype"] == "uint32"


# Records


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b'{"title": oops}', "malformed JSON"),
        (b'{"title": "x', "not an object"),
        (b"not json", "not an object"),
        (b"[1, 2]", "not an object"),
        (b'{"title": "x\xff"}', "invalid UTF-8"),
        (b'{"title": "\xed\xa0\x80"}', "invalid UTF-8"),
        (b'{"title": "x\\ud800"}', "malformed JSON"),
        (b'{"title": 5}', "wrong type"),
        (b'{"title": ["a"]}', "wrong type"),
        (b'{"sections": [1]}', "wrong type"),
        (b'{"other": "x"}', "no such fields"),
        (b'{"title": "", "summary": null}', "empty"),
    ],
)
def test_a_broken_record_is_one_counted_reject_with_its_place(pretrain, tmp_path, line, reason):
    path = write_lines(tmp_path / "in.jsonl", [*GOOD, line, b"", *GOOD])
    assert pretrain(path).code == 0
    totals = manifest(tmp_path / "out")["totals"]
    assert (totals["documents"], totals["rejects"]) == (80, {reason: 1})
    (reject,) = (tmp_path / "out/rejects").iterdir()
    entry = json.loads(reject.read_bytes())
    offset = sum(len(json.dumps(row)) + 1 for row in GOOD)
    assert (entry["source"], entry["byte_offset"], entry["line"]) == (path.as_posix(), offset, 41)


def test_a_broken_record_stops_the_run_if_asked_and_the_run_goes_on_later(pretrain, tmp_path):
    path = write_lines(tmp_path / "in.jsonl", [*GOOD, b"{]}", *GOOD])
    outcome = pretrain(path, "--on-error", "fail")
    assert outcome.code == 3
    assert outcome.error.startswith(f"{path.as_posix()}:41 (byte ")
    assert nothing_half_written(tmp_path / "out")
    assert pretrain(path).code == 0


def test_a_run_that_eats_the_wrong_file_is_stopped_unless_it_is_the_right_one(pretrain, tmp_path):
    path = write_lines(tmp_path / "in.jsonl", [*GOOD, *[b"{]}"] * 11])
    outcome = pretrain(path)
    assert outcome.code == 3
    assert outcome.error.startswith("11 of 51 records were rejected (11 malformed JSON)")
    assert f"the first: {path.as_posix()}:41 (byte " in outcome.error
    assert nothing_half_written(tmp_path / "out")
    assert pretrain(path, "--max-reject-fraction", "0.5").code == 0


def test_ten_rejects_stop_nothing(pretrain, tmp_path):
    assert pretrain(write_lines(tmp_path / "in.jsonl", [*GOOD, *[b"{]}"] * 10])).code == 0


def test_a_record_over_the_limit_is_a_reject_and_its_neighbours_stay(pretrain, tmp_path):
    path = write_lines(tmp_path / "in.jsonl", [GOOD[0], {"title": "x" * 1000}, GOOD[1]])
    assert pretrain(path, "--max-record-bytes", "500").code == 0
    totals = manifest(tmp_path / "out")["totals"]
    assert (totals["documents"], totals["rejects"]) == (2, {"record too large": 1})


def test_records_with_text_under_several_keys_have_them_listed_with_what_to_do(pretrain, tmp_path):
    record = {"Unnamed: 0": 1, "foo": "hello", "my bar": "world " * 3, "url": "https://a.b"}
    outcome = pretrain(write_lines(tmp_path / "in.jsonl", [record]))
    assert outcome.code == 2
    assert "found my bar 78%, foo 22%; without text Unnamed: 0, url" in outcome.error
    assert "--template='{foo}\\n{my bar}'" in outcome.error
    assert outcome.error.endswith("--renderer=text --fields='text=my bar'")


# Containers


def compressed(kind: str) -> bytes:
    text = b"".join(json.dumps(row).encode() + b"\n" for row in GOOD)
    if kind == "gz":
        return gzip.compress(text)
    if sys.version_info >= (3, 14):
        from compression import zstd
    else:
        from backports import zstd
    return bytes(zstd.compress(text))


@pytest.mark.parametrize("kind", ["gz", "zst"])
@pytest.mark.parametrize("damage", ["cut", "not compressed"])
def test_a_compressed_file_that_breaks_off_fails_the_run_until_it_is_accepted(
    pretrain, good, tmp_path, kind, damage
):
    path = tmp_path / f"in.jsonl.{kind}"
    path.write_bytes(compressed(kind)[:-9] if damage == "cut" else b"plain text\n")
    outcome = pretrain(good, path, "-q")
    assert outcome.code == 3
    assert outcome.error.startswith(f"input breaks off: {path.as_posix()}: byte ")
    assert "run the same command with --on-unread=skip" in outcome.error
    assert nothing_half_written(tmp_path / "out")
    kept = data_files(tmp_path / "out")
    assert pretrain(good, path, "-q").error == outcome.error
    accepted = pretrain(good, path, "--on-unread", "skip")
    assert accepted.code == 0
    assert "1 file not read to the end" in accepted.out
    assert data_files(tmp_path / "out") == kept
    found = manifest(tmp_path / "out")
    assert found["totals"]["unread"]["files"] == 1
    assert found["totals"]["rejects"] == {}
    (entry,) = found["sources"][1]["unread"]
    stored = len(compressed(kind)) - 9 if damage == "cut" else 0
    assert (entry["stored_byte"], entry["reason"]) == (
        stored,
        "cut off" if damage == "cut" else "corrupt data",
    )
    assert entry["stored_bytes"] == path.stat().st_size - stored


def test_every_file_that_breaks_off_is_named_however_many(pretrain, good, tmp_path):
    folder = tmp_path / "many"
    folder.mkdir()
    for i in range(60):
        (folder / f"{i:02d}.jsonl.gz").write_bytes(compressed("gz")[:-9])
    outcome = pretrain(folder, good, "-q")
    assert outcome.code == 3
    lines = [line for line in outcome.err.splitlines() if line.startswith("unread: ")]
    assert [line.split(": ")[1] for line in lines] == [
        (folder / f"{i:02d}.jsonl.gz").as_posix() for i in range(60)
    ]
    assert all(": not read: " in line.replace("; ", ": ") for line in lines)
    assert outcome.error.startswith("60 of 61 input files break off, not read: ")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('[{"title": "a"}, {"title": "b"}', "the JSON array has no closing bracket"),
        ('[{"title": "a"}, {"title": "b', "the JSON array has no closing bracket"),
        ('[{"title": "a"}] xyz', "text after the closing bracket of the array: found b'x'"),
    ],
)
def test_a_lost_array_fails_the_run_and_keeps_its_whole_records(pretrain, tmp_path, text, said):
    (tmp_path / "in.json").write_text(text)
    outcome = pretrain(tmp_path / "in.json", "-q")
    assert outcome.code == 3
    assert said in outcome.error
    assert ": record 2, byte 1" in outcome.error
    assert pretrain(tmp_path / "in.json", "--on-unread", "skip").code == 0
    totals = manifest(tmp_path / "out")["totals"]
    assert (totals["documents"], totals["rejects"]) == (1, {})
    assert totals["unread"]["files"] == 1


@pytest.mark.parametrize(
    ("name", "text", "n_documents", "rejects"),
    [
        ("in.json", '[{"title": oops}, {"title": "b"}]', 1, {"malformed JSON": 1}),
        ("in.json", '[1, null, {"title": "b"}]', 1, {"not an object": 2}),
        ("in.json", '[{"title":"a"}},{"title":"b"},{"title":"c"}]', 2, {"malformed JSON": 1}),
        ("in.json", '[{"title":"a"}],{"title":"b"},{"title":"c"}]', 2, {"not an object": 1}),
        ("in.csv", "title,summary\na,b,c\nd\ne,f\n", 1, {"malformed CSV": 2}),
    ],
)
def test_a_broken_element_is_a_reject_and_its_neighbours_stay(
    pretrain, tmp_path, name, text, n_documents, rejects
):
    (tmp_path / name).write_text(text)
    assert pretrain(tmp_path / name, "--renderer", "encyclopedia").code == 0
    totals = manifest(tmp_path / "out")["totals"]
    assert (totals["documents"], totals["rejects"]) == (n_documents, rejects)


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ('title,summary\na,b\nc,"d\n' + "e,f\n" * 20, "record 2, byte 18"),
        ('title,"summary\na,b\nc,d\n' + "e,f\n" * 20, "record 1, byte 0"),
    ],
)
def test_a_csv_quote_that_is_never_closed_fails_the_run(
    pretrain, tokmill, tokenizer_dir, tmp_path, text, place
):
    (tmp_path / "in.csv").write_text(text)
    named = ("--renderer", "encyclopedia")
    outcome = pretrain(tmp_path / "in.csv", "-q", *named)
    assert outcome.code == 3
    assert f"in.csv: {place} of the text: a quoted field is not closed" in outcome.error
    planned = tokmill("plan", tmp_path / "in.csv", "-t", tokenizer_dir, *named)
    assert planned.code == 3
    assert "a quoted field is not closed" in planned.error


def parquet(**columns: list[Any]) -> bytes:
    sink = io.BytesIO()
    pq.write_table(pa.table(columns), sink)
    return sink.getvalue()


@pytest.mark.parametrize(
    ("data", "code", "said"),
    [
        (b"PAR1", 5, "expected a complete Parquet file"),
        (b"hello world\n" * 50, 5, "expected a complete Parquet file"),
        (parquet(title=["a"] * 99)[:200], 5, "expected a complete Parquet file"),
        (parquet(title=[1, 2]), 2, "found no text; without text title"),
        (parquet(foo=["a"], bar=["b"]), 2, "the text is not in one field, found foo 50%, bar 50"),
    ],
)
def test_a_parquet_file_that_is_none_or_of_other_columns_is_refused(
    pretrain, tmp_path, data, code, said
):
    (tmp_path / "in.parquet").write_bytes(data)
    outcome = pretrain(tmp_path / "in.parquet")
    assert outcome.code == code
    assert said in outcome.error
    assert nothing_half_written(tmp_path / "out")


# Nothing to tokenize


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("empty.jsonl", ""),
        ("blank.jsonl", "\n \n\t\r\n\n"),
        ("empty.json", ""),
        ("empty.csv", ""),
        ("empty.parquet", ""),
    ],
)
def test_an_input_without_a_record_is_an_error(pretrain, tmp_path, name, text):
    (tmp_path / name).write_text(text)
    outcome = pretrain(tmp_path / name, "-q")
    assert outcome.code == 3
    path = (tmp_path / name).as_posix()
    said = f"the run made no document: 1 input file without a record ({path})"
    assert outcome.error == said
    assert nothing_half_written(tmp_path / "out")


def test_an_empty_file_beside_others_is_none(pretrain, good, tmp_path):
    (tmp_path / "empty.jsonl").touch()
    assert pretrain(tmp_path / "empty.jsonl", good).code == 0


@pytest.mark.parametrize(
    ("limit", "reason"),
    [
        (("--min-tokens", "99999"), "(40 dropped: fewer than min_tokens); lower --min-tokens"),
        (("--max-tokens", "1"), "(40 dropped: more than max_tokens); raise --max-tokens"),
    ],
)
def test_limits_that_drop_everything_are_an_error(pretrain, good, tmp_path, limit, reason):
    outcome = pretrain(good, *limit, "-q")
    assert outcome.code == 3
    assert outcome.error == f"the run made no document of 40 records {reason}"
    assert nothing_half_written(tmp_path / "out")


def test_a_run_whose_few_records_were_all_rejected_names_the_first(pretrain, tmp_path):
    path = write_lines(tmp_path / "in.jsonl", [b"{bad}"] * 3)
    outcome = pretrain(path, "-q")
    assert outcome.code == 3
    assert outcome.error.startswith(
        "the run made no document of 3 records (3 rejected: malformed JSON); the first: "
        f"{path.as_posix()}:1 (byte 0): malformed JSON: "
    )
    assert pretrain(path, "--max-reject-fraction", "1").code == 3


def test_one_of_several_sources_whose_records_were_all_rejected_is_an_error(
    pretrain, good, tmp_path
):
    path = write_lines(tmp_path / "in.jsonl", [b"{bad}"])
    outcome = pretrain(good, path, "-q", "--max-reject-fraction", "0.5")
    assert outcome.code == 3
    assert outcome.error.startswith(
        f"every record of 1 of 2 input files was rejected ({path.as_posix()}): 1 malformed JSON; "
        f"the first: {path.as_posix()}:1 (byte 0): malformed JSON: "
    )
    assert "--max-reject-fraction=1" in outcome.error
    assert pretrain(good, path, "--max-reject-fraction", "1").code == 0


def test_where_most_files_are_one_record_such_a_file_is_judged_as_one(pretrain, tmp_path):
    folder = tmp_path / "texts"
    folder.mkdir()
    for i in range(99):
        (folder / f"{i:02d}.txt").write_bytes(b"hello \xff" if i == 5 else b"hello")
    outcome = pretrain(folder, "-q")
    assert outcome.code == 3
    assert "every record of 1 of 99 input files was rejected" in outcome.error
    (folder / "99.txt").write_bytes(b"hello")  # now one in a hundred
    assert pretrain(folder, "-q", "--overwrite").code == 0
    assert manifest(tmp_path / "out")["totals"]["rejects"] == {"invalid UTF-8": 1}


def test_a_text_over_the_limit_is_told_what_to_do(pretrain, tmp_path):
    (tmp_path / "book.txt").write_text("hello world\n\n" * 100)
    outcome = pretrain(tmp_path / "book.txt", "-q", "--max-record-bytes", "1000")
    assert outcome.code == 3
    assert (
        "record too large: 1300 bytes, over max_record_bytes = 1000: the whole file is one "
        "document; set --text-separator, or raise --max-record-bytes"
    ) in outcome.error
    limits = ("--max-record-bytes", "1000", "--text-separator", "\\n\\n", "--overwrite")
    assert pretrain(tmp_path / "book.txt", *limits).code == 0


# What plan foresees


def test_plan_on_nothing_says_that_there_is_nothing_to_predict_from(
    tokmill, tokenizer_dir, tmp_path
):
    (tmp_path / "empty.jsonl").write_bytes(b"")
    outcome = tokmill("plan", tmp_path / "empty.jsonl", "-t", tokenizer_dir)
    assert outcome.code == 3
    assert "nothing to predict from" in outcome.error


def test_plan_fails_where_the_run_would_and_prints_what_it_knows(
    tokmill, tokenizer_dir, pretrain, tmp_path
):
    rows = [row for i in range(100) for row in ([GOOD[i % 40], b"{bad}"] if i % 7 else [b"{bad}"])]
    path = write_lines(tmp_path / "in.jsonl", rows)
    assert pretrain(path).code == 3
    outcome = tokmill("plan", path, "-t", tokenizer_dir, "--engine", "reference")
    assert outcome.code == 3
    assert outcome.error.startswith("the run would stop: ")
    assert "sampled records were rejected" in outcome.error
    assert "rejects" in outcome.out
    allowed = ("--engine", "reference", "--max-reject-fraction", "0.9")
    assert tokmill("plan", path, "-t", tokenizer_dir, *allowed).code == 0


def test_plan_fails_where_every_sampled_record_was_rejected(tokmill, tokenizer_dir, tmp_path):
    path = write_lines(tmp_path / "in.jsonl", [b"{bad}"] * 30)
    outcome = tokmill("plan", path, "-t", tokenizer_dir, "--renderer", "text")
    assert outcome.code == 3
    assert outcome.error.startswith("the run would make no document of 30 records (30 rejected: ")


# The output directory


def test_an_output_that_is_a_file_is_a_storage_error(pretrain, good, tmp_path):
    (tmp_path / "out").write_bytes(b"mine")
    outcome = pretrain(good)
    assert outcome.code == 5
    assert outcome.error.startswith(f"{tmp_path / 'out'}: ")
    assert (tmp_path / "out").read_bytes() == b"mine"


@pytest.mark.parametrize("overwrite", [(), ("--overwrite",)])
def test_a_directory_with_files_of_others_is_left_alone(pretrain, good, tmp_path, overwrite):
    (tmp_path / "out").mkdir()
    (tmp_path / "out/mine.txt").write_bytes(b"mine")
    outcome = pretrain(good, *overwrite)
    assert outcome.code == 6
    assert "holds files but no plan of a run (mine.txt" in outcome.error
    assert (tmp_path / "out/mine.txt").read_bytes() == b"mine"


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_directory_that_cannot_be_written_is_a_storage_error(pretrain, good, tmp_path):
    (tmp_path / "out").mkdir(mode=0o555)
    outcome = pretrain(good)
    assert (outcome.code, outcome.error) == (5, f"{tmp_path / 'out'}: permission denied")


def test_a_directory_in_use_by_another_run_is_refused(pretrain, good, tmp_path):
    (tmp_path / "out").mkdir()
    with locked(tmp_path / "out"):
        outcome = pretrain(good)
    assert outcome.code == 6
    assert "another run is writing here" in outcome.error
    assert pretrain(good).code == 0


def test_no_space_is_one_line_and_the_same_command_completes_with_more(
    good, tokenizer_dir, tmp_path
):
    words = command(good, tokenizer_dir, tmp_path / "out")
    limited = subprocess.run(
        ["bash", "-c", 'ulimit -f 1; "$@"', "bash", *words], capture_output=True, text=True
    )
    assert limited.returncode == 5, limited.stderr
    assert "parts that are done are kept: make room and run the same" in limited.stderr
    assert "Traceback" not in limited.stderr
    assert nothing_half_written(tmp_path / "out")
    assert subprocess.run(words, capture_output=True).returncode == 0


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (
            ("--renderer", "encyclopedia"),
            "--renderer (render.renderer) was 'article', is 'encyclopedia'",
        ),
        (("--part-bytes", "77"), "--part-bytes (output.part_bytes) was 268435456, is 77"),
        (("--eos-token", "<bos>"), "the id of eos was 0, is 1"),
    ],
)
def test_other_settings_that_change_bytes_are_refused_in_the_same_directory(
    pretrain, good, tmp_path, change, said
):
    assert pretrain(good).code == 0
    before = data_files(tmp_path / "out")
    outcome = pretrain(good, *change)
    assert outcome.code == 6
    assert said in outcome.error
    assert data_files(tmp_path / "out") == before
    assert pretrain(good, *change, "--overwrite").code == 0


@pytest.mark.parametrize("change", ["longer", "touched", "gone", "new", "order"])
def test_other_inputs_are_refused_in_the_same_directory(pretrain, tmp_path, change):
    a = write_lines(tmp_path / "a.jsonl", GOOD[:20])
    b = write_lines(tmp_path / "b.jsonl", GOOD[20:])
    assert pretrain(a, b).code == 0
    inputs = [a, b]
    if change == "longer":
        write_lines(b, GOOD)
    elif change == "touched":
        os.utime(b, (1, 1))
    elif change == "gone":
        inputs = [a]
    elif change == "new":
        inputs.append(write_lines(tmp_path / "c.jsonl", GOOD))
    else:
        inputs.reverse()
    outcome = pretrain(*inputs)
    assert outcome.code == 6
    said = {
        "longer": f"{b} has changed (",
        "touched": f"{b} has changed (it was modified)",
        "gone": f"{b} is gone",
        "new": f"{tmp_path / 'c.jsonl'} is new",
        "order": "the input files come in another order",
    }
    assert said[change] in outcome.error
    assert "run with --overwrite to start again" in outcome.error


@pytest.mark.parametrize(
    ("name", "text"),
    [
        *(("plan.json", text) for text in ("", "{", "null", "[]")),
        *(("plan.json", f'{{"format_version": {n}}}') for n in (1, 99)),
        *(("parts/0000000.json", text) for text in ("", "null", "[]", "{}")),
        ("parts/0000000.json", '{"fingerprint": "x", "steps": []}'),
    ],
)
def test_a_damaged_or_newer_plan_or_commit_record_is_refused(pretrain, good, tmp_path, name, text):
    assert pretrain(good).code == 0
    (tmp_path / "out/manifest.json").unlink()
    rewrite(tmp_path / "out" / name, text.encode())
    outcome = pretrain(good)
    assert outcome.code == 6
    assert outcome.error.startswith(f"{tmp_path / 'out' / name}: ")
    assert not (tmp_path / "out/manifest.json").exists()


def rewrite(path: Path, data: bytes) -> None:
    path.unlink()
    path.write_bytes(data)


# Damaged datasets


def flipped(path: Path) -> bytes:
    data = bytearray(path.read_bytes())
    data[-3] ^= 1
    return bytes(data)


@pytest.mark.parametrize(
    ("name", "damage", "said"),
    [
        ("train-0000000-0000.bin", "flip", "its bytes have changed (blake3)"),
        ("train-0000000-0000.bin", "cut", "the manifest says"),
        ("train-0000000-0000.bin", "remove", "train-0000000-0000.bin: missing"),
        ("train-0000000-0000.idx", "flip", "its bytes have changed (blake3)"),
        ("train-0000000-0000.idx", "cut", "bytes do not fit 40 documents"),
        ("train-0000000-0000.idx", "remove", "train-0000000-0000.idx: missing"),
        ("parts/0000000.json", "remove", "parts/0000000.json: missing"),
        ("plan.json", "remove", "plan.json: missing"),
        ("parts/new.json", "add", "parts/new.json: not listed in the manifest"),
    ],
)
def test_verify_names_every_lie_and_exits_1(pretrain, tokmill, good, tmp_path, name, damage, said):
    assert pretrain(good).code == 0
    path = tmp_path / "out" / name
    if damage == "add":
        path.write_bytes(b"x")
    elif damage == "remove":
        path.unlink()
    else:
        rewrite(path, flipped(path) if damage == "flip" else path.read_bytes()[:-1])
    outcome = tokmill("verify", tmp_path / "out")
    assert outcome.code == 1
    assert said in outcome.out
    assert outcome.out.startswith("mismatch: ")
    assert ": verification failed, " in outcome.error


@pytest.mark.parametrize(
    "change",
    [
        {"sha256": None},
        {"totals": None},
        {"shards": [5]},
        {"files": 5},
        {"dtype": "bogus"},
        {"tokenizer": {}},
        {"length_histogram": None},
    ],
)
def test_verify_of_an_edited_manifest_exits_1(pretrain, tokmill, good, tmp_path, change):
    assert pretrain(good).code == 0
    edited = manifest(tmp_path / "out") | change
    rewrite(tmp_path / "out/manifest.json", json.dumps(edited).encode())
    outcome = tokmill("verify", tmp_path / "out")
    assert outcome.code == 1
    assert "manifest.json: its own sha256 does not match" in outcome.out
    assert outcome.error


@pytest.mark.parametrize("verb", ["verify", "inspect"])
@pytest.mark.parametrize(
    ("text", "code"),
    [(b"{", 1), (b"", 1), (b"null", 1), (b"\xff", 1), (b'{"format_version":2}', 6)],
)
def test_a_damaged_or_newer_manifest_is_refused(tokmill, tmp_path, verb, text, code):
    (tmp_path / "manifest.json").write_bytes(text)
    outcome = tokmill(verb, tmp_path)
    assert outcome.code == code
    assert outcome.error.startswith(f"{tmp_path / 'manifest.json'}: ")


@pytest.mark.parametrize("verb", ["verify", "inspect"])
def test_a_directory_that_is_no_dataset_is_a_usage_error(tokmill, tmp_path, verb):
    outcome = tokmill(verb, tmp_path)
    assert outcome.code == 2
    assert "not a tokmill dataset: no manifest.json there" in outcome.error
    assert tokmill(verb, tmp_path / "nope").code == 2


@pytest.mark.parametrize("verb", ["verify", "inspect"])
def test_a_dataset_whose_run_is_not_finished_says_how_to_finish_it(
    pretrain, tokmill, good, tmp_path, verb
):
    assert pretrain(good).code == 0
    (tmp_path / "out/manifest.json").unlink()
    outcome = tokmill(verb, tmp_path / "out")
    assert outcome.code == 6
    assert "run the same command again to continue it" in outcome.error


@pytest.mark.parametrize("number", ["40", "-1", "99999999999999999999"])
def test_a_document_that_the_dataset_lacks_is_a_usage_error(
    pretrain, tokmill, good, tmp_path, number
):
    assert pretrain(good).code == 0
    outcome = tokmill("inspect", tmp_path / "out", f"--document={number}")
    assert outcome.code == 2
    assert outcome.error.endswith(f"no document {number}; it holds 0 to 39")


# Interrupted and killed


def command(path: Path | str, tokenizer_dir: Path, output: Path, *more: str) -> list[str]:
    options = ["-t", str(tokenizer_dir), "-o", str(output), "--engine", "reference"]
    return [sys.executable, "-m", "tokmill", "pretrain", str(path), *options, *more]


@pytest.fixture(scope="module")
def many_parts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Input of about 3 MB, so that a run of many parts is still at work when it is struck."""
    rows = [{"title": f"title {i}", "summary": f"hello {i} " * 30} for i in range(8_000)]
    return write_lines(tmp_path_factory.mktemp("many") / "in.jsonl", rows)


PARTS = ("--part-bytes", "100kB", "--quiet", "--workers")


def workers_of(process: subprocess.Popen[bytes]) -> list[psutil.Process]:
    children = psutil.Process(process.pid).children()
    return [
        child for child in children if "tokmill.executors.processes" in " ".join(child.cmdline())
    ]


def wait_until(claim: Callable[[], object], process: subprocess.Popen[bytes]) -> None:
    while not claim():
        assert process.poll() is None, "it ended before it could be struck"


@pytest.mark.parametrize(
    ("number", "workers"), [(signal.SIGINT, "1"), (signal.SIGINT, "2"), (signal.SIGTERM, "2")]
)
def test_an_interrupted_run_exits_130_and_the_same_command_completes(
    many_parts, tokenizer_dir, tmp_path, tokmill, number, workers
):
    words = command(many_parts, tokenizer_dir, tmp_path / "out", *PARTS, workers)
    with subprocess.Popen(words, stderr=subprocess.PIPE) as process:
        wait_until(lambda: list((tmp_path / "out").glob("parts/*.json")), process)
        process.send_signal(number)
        _, said = process.communicate(timeout=60)
    assert process.returncode == 130
    line = said.decode().strip()
    assert line.startswith("error: interrupted; ")
    assert line.endswith(" kept: the same command continues")
    assert nothing_half_written(tmp_path / "out")
    assert subprocess.run(words, capture_output=True).returncode == 0
    assert tokmill("verify", tmp_path / "out").code == 0


def test_a_killed_worker_is_an_error_and_the_same_command_completes(
    many_parts, tokenizer_dir, tmp_path
):
    words = command(many_parts, tokenizer_dir, tmp_path / "out", *PARTS, "2")
    with subprocess.Popen(words, stderr=subprocess.PIPE) as process:
        wait_until(lambda: list((tmp_path / "out").glob("parts/*.json")), process)
        workers_of(process)[0].kill()
        _, said = process.communicate(timeout=60)
    assert process.returncode == 7
    assert said.startswith(b"error: a worker process died")
    assert not (tmp_path / "out/manifest.json").exists()
    assert subprocess.run(words, capture_output=True).returncode == 0


def test_workers_die_with_their_parent_and_the_rerun_gives_the_bytes_of_an_unbroken_run(
    many_parts, tokenizer_dir, tmp_path, tokmill
):
    words = command(many_parts, tokenizer_dir, tmp_path / "out", *PARTS, "2")
    with subprocess.Popen(words, stderr=subprocess.DEVNULL) as process:
        wait_until(lambda: list((tmp_path / "out").glob("parts/*.json")), process)
        workers = workers_of(process)
        process.kill()
        assert psutil.wait_procs(workers, timeout=30)[1] == []
    committed = {path: path.stat().st_ino for path in (tmp_path / "out/parts").glob("???????.json")}
    assert subprocess.run(words, capture_output=True).returncode == 0
    assert {path: path.stat().st_ino for path in committed} == committed
    assert tokmill("verify", tmp_path / "out").code == 0
    unbroken = command(many_parts, tokenizer_dir, tmp_path / "whole", *PARTS, "1")
    assert subprocess.run(unbroken, capture_output=True).returncode == 0
    assert data_files(tmp_path / "out") == data_files(tmp_path / "whole")


def test_a_failed_overwrite_leaves_the_dataset(pretrain, tokmill, good, tmp_path):
    assert pretrain(good).code == 0
    before = data_files(tmp_path / "out")
    words = ("--overwrite", "--engine", "gigatoken", "-t", unigram(tmp_path))
    assert pretrain(good, *words).code == 4
    assert data_files(tmp_path / "out") == before
    assert tokmill("verify", tmp_path / "out").code == 0


def unigram(tmp_path: Path) -> Path:
    """A tokenizer that the reference loads and gigatoken refuses."""
    from tokenizers import Tokenizer
    from tokenizers.models import Unigram

    directory = tmp_path / "unigram"
    directory.mkdir()
    library = Tokenizer(Unigram([("<eos>", 0.0), ("<unk>", 0.0), ("a", -1.0)], unk_id=1))
    library.save(str(directory / "tokenizer.json"))
    (directory / "tokenizer_config.json").write_text('{"eos_token": "<eos>"}')
    return directory


@pytest.mark.parametrize("ending", ["bin", "idx"])
@pytest.mark.parametrize("damage", ["gone", "cut"])
def test_a_resumed_run_does_not_vouch_for_files_that_are_gone(
    pretrain, tokmill, good, tmp_path, ending, damage
):
    assert pretrain(good).code == 0
    (tmp_path / "out/manifest.json").unlink()
    path = tmp_path / f"out/train-0000000-0000.{ending}"
    data = path.read_bytes()
    path.unlink()
    if damage == "cut":
        path.write_bytes(data[:-4])
    outcome = pretrain(good)
    if outcome.code == 0:  # made again
        assert tokmill("verify", tmp_path / "out").code == 0
    else:
        assert outcome.code == 6
        assert path.name in outcome.error


@pytest.mark.parametrize(
    "words",
    [
        ("--fields", "summary=title"),
        ("--fields", "section_title=content"),
        ("--renderer", "encyclopedia:separator=\udcff"),
        ("--fields", "title=\udcff"),
        ("--renderer", "template", "--template", "{title}\udcff"),
    ],
)
def test_field_names_that_clash_and_settings_that_are_not_utf_8_are_usage_errors(
    good, tokenizer_dir, tmp_path, words
):
    done = subprocess.run(  # one of them ended in a native crash
        command(good, tokenizer_dir, tmp_path / "out", *words), capture_output=True
    )
    assert done.returncode == 2
    assert done.stderr.startswith(b"error: ")


def test_a_pipe_given_as_a_file_is_a_usage_error_that_names_stdin(pretrain, tmp_path):
    os.mkfifo(tmp_path / "in.jsonl")
    outcome = pretrain(tmp_path / "in.jsonl")
    assert outcome.code == 2
    assert "stdin" in outcome.error or "standard input" in outcome.error


def test_standard_input_beside_other_files_is_not_lost_with_two_workers(
    good, tokenizer_dir, tmp_path
):
    more = (str(good), "--part-bytes", "100", "--workers", "2")
    words = command("-", tokenizer_dir, tmp_path / "out", *more)
    done = subprocess.run(words, input=good.read_bytes(), capture_output=True)
    if done.returncode == 0:
        assert manifest(tmp_path / "out")["totals"]["documents"] == 80
    else:
        assert done.returncode == 2


def test_names_that_are_not_utf_8_make_a_dataset_that_verifies(pretrain, tokmill, tmp_path):
    path = write_lines(tmp_path / os.fsdecode(b"\xff.jsonl"), GOOD)
    outcome = pretrain(path)
    assert outcome.code == 0
    assert tokmill("verify", tmp_path / "out").code == 0


def test_an_input_that_shrinks_while_it_is_read_is_a_storage_error(
    many_parts, tokenizer_dir, tmp_path
):
    path = tmp_path / "in.jsonl"
    path.write_bytes(many_parts.read_bytes())
    words = command(path, tokenizer_dir, tmp_path / "out", *PARTS, "1")
    with subprocess.Popen(words, stderr=subprocess.PIPE) as process:
        wait_until(lambda: list((tmp_path / "out").glob("parts/*.json")), process)
        os.truncate(path, 1_000_000)
        _, said = process.communicate(timeout=60)
    assert process.returncode == 5
    assert str(path).encode() in said
    assert nothing_half_written(tmp_path / "out")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
@pytest.mark.parametrize("name", ["shut", "shut/in.jsonl", "shut/*.jsonl"])
def test_a_directory_that_may_not_be_read_is_one_line(pretrain, tmp_path, name):
    write_lines(tmp_path / "in.jsonl", GOOD)
    (tmp_path / "shut").mkdir()
    (tmp_path / "in.jsonl").rename(tmp_path / "shut/in.jsonl")
    (tmp_path / "shut").chmod(0o000)
    outcome = pretrain(tmp_path / name)
    (tmp_path / "shut").chmod(0o700)
    assert outcome.code in (2, 5)
    assert outcome.error


def test_a_key_with_a_line_end_does_not_break_the_one_line_of_an_error(pretrain, tmp_path):
    outcome = pretrain(write_lines(tmp_path / "in.jsonl", [{"a\nb\x1b[31m": 1, "x" * 9999: 2}]))
    assert outcome.code == 2
    assert "\x1b" not in outcome.error
    assert len(outcome.error) < 1000


def test_a_dataset_inside_its_own_input_is_not_read(pretrain, tmp_path):
    write_lines(tmp_path / "in.jsonl", GOOD)
    assert pretrain(tmp_path).code == 0
    assert pretrain(tmp_path).code == 0


def test_an_input_that_was_mended_before_anything_was_committed_needs_no_overwrite(
    pretrain, tmp_path
):
    path = write_lines(tmp_path / "in.jsonl", [b"{]}"] * 20)
    assert pretrain(path, "--renderer", "encyclopedia", "--on-error", "fail").code == 3
    write_lines(path, GOOD)
    assert pretrain(path, "--renderer", "encyclopedia").code == 0


def test_a_reader_that_goes_away_is_told_from_a_lie(pretrain, good, tmp_path):
    assert pretrain(good).code == 0
    ours, theirs = os.pipe()
    os.close(ours)
    words = [sys.executable, "-m", "tokmill", "verify", str(tmp_path / "out")]
    done = subprocess.run(words, stdout=theirs, stderr=subprocess.PIPE)
    os.close(theirs)
    assert (done.returncode, done.stderr) == (141, b"")


def test_no_color_holds_for_errors(pretrain, tmp_path, monkeypatch):
    import pty

    ours, theirs = pty.openpty()
    words = [sys.executable, "-m", "tokmill", "--no-color", "verify", str(tmp_path / "nope")]
    subprocess.run(words, stderr=theirs, check=False)
    os.close(theirs)
    said = os.read(ours, 10_000)
    os.close(ours)
    assert b"error:" in said
    assert b"\x1b[" not in said
