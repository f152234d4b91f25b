"""A user's mistakes and broken inputs, through the command line as a user sees it.

Each gives one clear line and the documented exit code, leaves nothing half-written, and the same
command completes once the cause is gone. Which records are rejected, what a damaged file of a
dataset is, and what makes another run stand with the code that finds it.
"""

from __future__ import annotations

import gzip
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.conftest import GOOD, SAMPLES, write_lines


def nothing_half_written(directory: Path) -> bool:
    """Return whether there is neither a manifest nor a temporary file."""
    return not (directory / "manifest.json").exists() and not list(directory.rglob("*.tmp"))


# One mistake, one line

EOS = {
    "eos_token": "<|im_start|>",
    "chat_template": "{% for m in messages %}<|im_start|>{% endfor %}",
}
CUT = gzip.compress(b'{"text": "t"}\n' * 40)[:-9]
MISTAKES = [
    # words, files, exit code, what is said
    ("nope.jsonl", {}, 2, "nope.jsonl: no such file or directory"),
    ("- -", {}, 2, "standard input is named twice, and can be read once"),
    ("x[ab].jsonl", {}, 2, "x[ab].jsonl: no file matches"),
    (f"{'n' * 300}.jsonl", {}, 5, ".jsonl: file name too long"),
    (f"--output={'n' * 300}", {}, 5, ": file name too long"),
    ("notes.doc", {"notes.doc": "x"}, 2, "notes.doc: expected a file ending in .jsonl"),
    ("bare", {"bare/notes.doc": "x"}, 2, "bare: no file ending in .jsonl"),
    ("--val-fraction=2", {}, 2, "--val-fraction: expected between 0.0"),
    ("--renderer=template", {}, 2, "renderer template needs a --template"),
    ("--renderer=template --template={", {}, 2, "template '{': "),
    ("--renderer=template --template={nope}", {}, 2, "wants the keys nope; the first"),
    ("--renderer=text", {}, 2, "renderer text wants the keys text; the first records have title"),
    ("--fields=summary=title", {}, 2, "title"),
    ("--fields=title=\udcff", {}, 2, "expected text in UTF-8"),
    ("--config=c", {}, 2, "c: no such configuration file"),
    ("--config=c", {"c": "[foo]\n"}, 2, "c: unknown section [foo]; known: input, "),
    (
        "--config=c",
        {"c": "[run]\nworker = 1"},
        2,
        "c: run.worker: unknown key; did you mean workers?",
    ),
    ("-t broken", {"broken/x": ""}, 4, "no tokenizer here; looked for tokenizer.json, "),
    ("-t broken", {"broken/tokenizer.json": ""}, 4, "tokenizer.json: not valid JSON"),
    ("-t broken", {"broken/tokenizer.json": '{"model": {}}'}, 4, "tokenizers library refuses it"),
    ("-t own", {"own/tokenizer_config.json": json.dumps(EOS)}, 4, "eos is ambiguous"),
    ("--eos-token=<zzz>", {}, 4, "--eos-token names"),
    ("in.jsonl", {"in.jsonl": ""}, 3, "made no document: 1 input file without a record (in.jsonl)"),
    ("in.jsonl --format=csv", {"in.jsonl": '{"text": "a"}\n'}, 2, "holds JSON, expected csv: "),
    ("in.parquet", {"in.parquet": "PAR1"}, 5, "expected a complete Parquet file"),
    ("in.json", {"in.json": '[{"title": "a"}'}, 3, "the JSON array has no closing bracket"),
    ("in.csv", {"in.csv": 'text\na\n"b\n'}, 3, "a quoted field is not closed"),
    ("in.jsonl.gz", {"in.jsonl.gz": CUT}, 3, "run the same command with --on-unread=skip"),
    ("--min-tokens=99999", {}, 3, "(40 dropped: fewer than min_tokens); lower --min-tokens"),
    (
        "in.jsonl",
        {"in.jsonl": "{bad}"},
        3,
        "1 rejected: malformed JSON); the first: in.jsonl:1 (byte",
    ),
    (
        "good.jsonl in.jsonl",
        {"in.jsonl": "{bad}"},
        3,
        "every record of 1 of 2 input files was reje",
    ),
    ("book.txt --max-record-bytes=9", {"book.txt": "a" * 20}, 3, "or raise --max-record-bytes"),
    ("", {"out": "mine"}, 5, "out: "),
    ("", {"out/mine.txt": "mine"}, 6, "no dataset or export of tokmill (mine.txt"),
    (
        "--overwrite",
        {"out/mine.txt": "mine"},
        6,
        "no dataset or export of tokmill (mine.txt",
    ),
]


@pytest.mark.parametrize(("words", "files", "code", "said"), MISTAKES)
def test_a_mistake_is_one_line(
    pretrain, good, tokenizer_dir, tmp_path, monkeypatch, words, files, code, said
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own").mkdir()
    (tmp_path / "own/tokenizer.json").write_bytes((tokenizer_dir / "tokenizer.json").read_bytes())
    for name, content in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    given = words.split()
    inputs = [word for word in given if not word.startswith("-")]
    if not inputs or given[0] == "-t":
        given.append(good.name)
    outcome = pretrain("--output", "out", "--quiet", *given)
    assert outcome.code == code
    assert said in outcome.error
    assert nothing_half_written(tmp_path / "out")
    if "out" in "".join(files):
        (name,) = files
        assert (tmp_path / name).read_bytes() == b"mine"


CHATS = SAMPLES / "sft" / "chats.jsonl"


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
def test_a_pipe_given_as_a_file_of_settings_is_a_usage_error(
    tokmill, good, tokenizer_dir, tmp_path, words
):
    shutil.copytree(tokenizer_dir, tmp_path / "folder")
    (tmp_path / "folder/tokenizer_config.json").unlink()
    (tmp_path / "weights").mkdir()
    for pipe in ("folder/tokenizer_config.json", "pipe", "weights/a.safetensors"):
        os.mkfifo(tmp_path / pipe)
    places = {name: tmp_path / name for name in ("pipe", "folder", "weights")}
    files = {"good": good, "chats": CHATS, "tokenizer": tokenizer_dir}
    given = words.format(**files, **places).split()
    outcome = tokmill(*given, *(() if given[0] == "memory" else ("-o", tmp_path / "out")))
    assert outcome.code == 2
    assert ": expected a regular file, found a pipe" in outcome.error
    assert outcome.error.startswith(str(tmp_path))


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


# Records


def test_a_run_that_eats_the_wrong_file_is_stopped_unless_it_is_the_right_one(pretrain, tmp_path):
    path = write_lines(tmp_path / "in.jsonl", [*GOOD, *[b"{]}"] * 11])
    outcome = pretrain(path)
    assert outcome.code == 3
    assert outcome.error.startswith("11 of 51 records were rejected (11 malformed JSON)")
    assert f"the first: {path.as_posix()}:41 (byte " in outcome.error
    assert nothing_half_written(tmp_path / "out")
    assert pretrain(path, "--max-reject-fraction", "0.5").code == 0


def test_records_with_text_under_several_keys_have_them_listed_with_what_to_do(pretrain, tmp_path):
    record = {"Unnamed: 0": 1, "foo": "hello", "my bar": "world " * 3, "url": "https://a.b"}
    outcome = pretrain(write_lines(tmp_path / "in.jsonl", [record]))
    assert outcome.code == 2
    assert "found my bar 78%, foo 22%; without text Unnamed: 0, url" in outcome.error
    assert "--template='{foo}\\n{my bar}'" in outcome.error
    assert outcome.error.endswith("--renderer=text --fields='text=my bar'")


# Containers


def test_every_file_that_breaks_off_is_named_however_many(pretrain, good, tmp_path):
    folder = tmp_path / "many"
    folder.mkdir()
    for i in range(15):
        (folder / f"{i:02d}.jsonl.gz").write_bytes(CUT)
    outcome = pretrain(folder, good, "-q")
    assert outcome.code == 3
    lines = [line for line in outcome.err.splitlines() if line.startswith("unread: ")]
    assert [line.split(": ")[1] for line in lines] == [
        (folder / f"{i:02d}.jsonl.gz").as_posix() for i in range(15)
    ]
    assert all(": not read: " in line.replace("; ", ": ") for line in lines)
    assert outcome.error.startswith("15 of 16 input files break off, not read: ")


# What plan foresees


def test_plan_fails_where_the_run_would_and_prints_what_it_knows(tokmill, tokenizer_dir, tmp_path):
    rows = [row for i in range(100) for row in ([GOOD[i % 40], b"{bad}"] if i % 7 else [b"{bad}"])]
    path = write_lines(tmp_path / "in.jsonl", rows)
    outcome = tokmill("plan", path, "-t", tokenizer_dir, "--engine", "reference")
    assert outcome.code == 3
    assert outcome.error.startswith("the run would stop: ")
    assert "100 of 185 records were rejected" in outcome.error
    (line,) = [line for line in outcome.out.splitlines() if line.startswith("rejects")]
    assert line.endswith("54.05% of the records: more than --max-reject-fraction=0.01 allows")


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (b"{bad}", "the run would make no document of 1 record (1 rejected: "),
        (b"", "nothing to predict from"),
    ],
)
def test_plan_fails_where_there_would_be_no_document(tokmill, tokenizer_dir, tmp_path, line, said):
    path = write_lines(tmp_path / "in.jsonl", [line])
    outcome = tokmill("plan", path, "-t", tokenizer_dir, "--renderer", "text")
    assert outcome.code == 3
    assert said in outcome.error


# The output directory


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_directory_that_cannot_be_written_is_a_storage_error(pretrain, good, tmp_path):
    (tmp_path / "out").mkdir(mode=0o555)
    outcome = pretrain(good)
    assert (outcome.code, outcome.error) == (5, f"{tmp_path / 'out'}: permission denied")


def test_no_space_is_one_line_and_the_same_command_completes_with_more(
    good, tokenizer_dir, tmp_path
):
    words = [sys.executable, "-m", "tokmill", "pretrain", str(good), "-t", str(tokenizer_dir)]
    words += ["-o", str(tmp_path / "out"), "--engine", "reference"]
    limited = subprocess.run(
        ["bash", "-c", 'ulimit -f 1; "$@"', "bash", *words], capture_output=True, text=True
    )
    assert limited.returncode == 5, limited.stderr
    assert "parts that are done are kept: make room and run the same" in limited.stderr
    assert "Traceback" not in limited.stderr
    assert nothing_half_written(tmp_path / "out")
    assert subprocess.run(words, capture_output=True).returncode == 0


# Datasets that are damaged, unfinished, or none


@pytest.mark.parametrize(
    ("text", "code", "said"),
    [
        (b"{", 1, "manifest.json: "),
        (b'{"format_version":2}', 6, "manifest.json: "),
        (None, 2, "not a tokmill dataset: no manifest.json there"),
    ],
)
def test_what_is_no_dataset_of_this_version_is_refused(tokmill, tmp_path, text, code, said):
    if text is not None:
        (tmp_path / "manifest.json").write_bytes(text)
    for verb in ("verify", "inspect", "report"):
        outcome = tokmill(verb, tmp_path)
        assert outcome.code == code
        assert outcome.error.startswith(str(tmp_path))
        assert said in outcome.error


def test_a_dataset_whose_run_is_not_finished_says_how_to_finish_it(
    pretrain, tokmill, good, tmp_path
):
    assert pretrain(good).code == 0
    (tmp_path / "out/manifest.json").unlink()
    for verb in ("verify", "inspect", "report"):
        outcome = tokmill(verb, tmp_path / "out")
        assert outcome.code == 6
        assert "run the same command again to continue it" in outcome.error


# Odd names, streams and ends


def test_a_pipe_given_as_a_file_is_a_usage_error_that_names_stdin(pretrain, tmp_path):
    os.mkfifo(tmp_path / "in.jsonl")
    outcome = pretrain(tmp_path / "in.jsonl")
    assert outcome.code == 2
    assert "stdin" in outcome.error or "standard input" in outcome.error


def test_names_that_are_not_utf_8_make_a_dataset_that_verifies(pretrain, tokmill, tmp_path):
    path = write_lines(tmp_path / os.fsdecode(b"\xff.jsonl"), GOOD)
    outcome = pretrain(path)
    assert outcome.code == 0
    assert tokmill("verify", tmp_path / "out").code == 0


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
@pytest.mark.parametrize("name", ["shut", "shut/*.jsonl"])
def test_a_directory_that_may_not_be_read_is_one_line(pretrain, tmp_path, name):
    (tmp_path / "shut").mkdir()
    write_lines(tmp_path / "shut/in.jsonl", GOOD)
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


@pytest.mark.parametrize("words", [("verify", ""), ("export", "", "--to", "nanogpt", "-o", "x")])
def test_an_empty_name_is_not_the_working_directory(tokmill, single, monkeypatch, words):
    """Such as of `tokmill verify "$OUT"` with a variable that is not set."""
    monkeypatch.chdir(single.directory)
    outcome = tokmill(*words)
    assert outcome.code == 2
    assert outcome.error == "an empty name: expected a path (is a variable not set?)"


def test_a_reader_that_goes_away_is_told_from_a_lie(single):
    ours, theirs = os.pipe()
    os.close(ours)
    words = [sys.executable, "-m", "tokmill", "verify", str(single.directory)]
    done = subprocess.run(words, stdout=theirs, stderr=subprocess.PIPE)
    os.close(theirs)
    assert (done.returncode, done.stderr) == (141, b"")
