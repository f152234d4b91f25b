"""The verbs as a user types them: what they print, where, and what decides between two sources."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from contextlib import suppress
from types import SimpleNamespace

import pytest

from tests.cli.conftest import SAMPLES, manifest
from tokmill.cli.main import COMMANDS
from tokmill.errors import TokmillError
from tokmill.version import __version__

# Help and version


def test_help_names_every_verb_and_every_exit_code(tokmill):
    outcome = tokmill("--help")
    assert outcome.code == 0
    assert all(re.search(rf"^  {verb} ", outcome.out, re.MULTILINE) for verb in COMMANDS)
    tree = [TokmillError, *TokmillError.__subclasses__()]
    for code in {0, 130, *(error.exit_code for error in tree)}:
        assert re.search(rf"^ +{code} +\S", outcome.out, re.MULTILINE), code


@pytest.mark.parametrize("verb", COMMANDS)
def test_every_verb_helps_with_every_option(tokmill, verb):
    outcome = tokmill(verb, "-h")
    assert outcome.code == 0
    options = re.findall(r"^  (-.*)$", outcome.out, re.MULTILINE)
    assert options
    assert "Examples:" in outcome.out or verb == "verify"


HEAVY = "torch transformers datasets ray pyarrow numpy tokenizers huggingface_hub"
LIGHT = f"""
import os, sys
from tokmill.cli.main import main
for words in (["--help"], ["memory", "--model", "gpt2", "--explain"], ["memory", "--formulas"], []):
    os.environ |= {{}} if words else {{"_TOKMILL_COMPLETE": "bash_complete"}}
    sys.argv[1:] = words
    try:
        main()
    except SystemExit as end:
        print(end.code)
print([name for name in {HEAVY!r}.split() if name in sys.modules])
"""


def test_help_the_bill_of_a_model_and_completion_import_nothing_heavy():
    asked = {"COMP_WORDS": "tokmill export out --to nanog", "COMP_CWORD": "4"}
    done = subprocess.run(
        [sys.executable, "-c", LIGHT], capture_output=True, text=True, env={**os.environ, **asked}
    )
    lines = done.stdout.splitlines()
    assert lines[-3:] == ["plain,nanogpt", "0", "[]"], done.stderr
    assert lines.count("0") == 4


def test_the_module_runs_as_the_command_does():
    words = [sys.executable, "-m", "tokmill", "--version"]
    done = subprocess.run(words, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, f"tokmill, version {__version__}\n")


@pytest.mark.parametrize("words", [(), ("frob",), ("pretrain", "--frob"), ("verify",)])
def test_what_is_no_command_exits_2_and_prints_nothing_on_stdout(tokmill, words):
    outcome = tokmill(*words)
    assert outcome.code == 2
    assert not outcome.out
    assert outcome.err.startswith("Usage: ")
    assert ("\nerror: " in outcome.err) == bool(words)


# pretrain


def test_pretrain_prints_a_summary_on_stdout_and_notes_on_stderr(pretrain, good):
    outcome = pretrain(good)
    assert outcome.code == 0
    assert re.search(
        r"^records +40 = 40 documents \+ 0 drops \+ 0 rejects$", outcome.out, re.MULTILINE
    )
    assert "renderer: sections;" in outcome.err
    assert "\x1b" not in outcome.out + outcome.err


def test_quiet_prints_errors_and_what_json_asks_for(pretrain, good, tmp_path):
    outcome = pretrain(good, "--quiet", "--profile", "--model", "gpt2")
    assert (outcome.code, outcome.out, outcome.err) == (0, "", "")
    outcome = pretrain(good, "--quiet", "--json")
    assert (json.loads(outcome.out), outcome.err) == (manifest(tmp_path / "out"), "")
    refused = pretrain(good, "--quiet", "--min-tokens", "2")
    assert (refused.code, refused.out) == (6, "")
    assert "--min-tokens was 0, is 2" in refused.error


def test_quiet_prints_no_warning(pretrain, good, monkeypatch):
    status = SimpleNamespace(f_bavail=5000, f_frsize=1, f_blocks=5000)
    monkeypatch.setattr(os, "statvfs", lambda path: status)
    assert "warning: " in pretrain(good).err
    assert pretrain(good, "--overwrite", "--quiet").err == ""


def paragraphs(out: str) -> list[list[str]]:
    return [block.splitlines() for block in out.split("\n\n")]


MANY_REJECTS = [
    "{bad", "[1]", "7", '"x"', "{}", '{"title": 1}', '{"title": "t", "summary": 2}',
    '{"title": "t", "summary": "s", "sections": 7}', '{"title": "a"}{"title": "b"}', "\\",
]  # fmt: skip


def test_a_run_ends_in_at_most_ten_lines(pretrain, good, tmp_path):
    with good.open("a") as file:
        file.write("\n".join(MANY_REJECTS))
    words = ("--max-reject-fraction", "1", "--max-tokens", "11", "--val-fraction", "0.3")
    outcome = pretrain(good, *words)
    assert outcome.code == 0
    (summary,) = paragraphs(outcome.out)
    assert 5 <= len(summary) <= 10
    totals = manifest(tmp_path / "out")["totals"]
    drops, rejects = (sum(totals[name].values()) for name in ("drops", "rejects"))
    assert summary[0] == (
        f"records  {totals['records']:,} = {totals['documents']:,} documents + {drops:,} drops + "
        f"{rejects:,} rejects"
    )
    assert totals["records"] == totals["documents"] + drops + rejects
    assert f"{rejects:,}: " in next(line for line in summary if line.startswith("rejects"))
    assert "GPU" not in outcome.out
    assert "RAM" not in outcome.out


def test_a_model_adds_at_most_ten_lines(pretrain, good, monkeypatch):
    monkeypatch.setenv("COLUMNS", "300")  # a long temporary path stays on one line
    out = pretrain(good, "--model", "gpt2", "--gpu", "3090").out
    summary, bill = paragraphs(out)
    assert len(summary) <= 10
    assert 5 <= len(bill) <= 10
    assert [line.split("  ")[0].strip() for line in bill if line[0] != " "] == [
        "verdict", "GPU memory", "largest", "host RAM", "disk", "time", "model", "training", "more",
    ]  # fmt: skip
    assert "on RTX 3090 (23.56 GiB)" in out
    assert any(re.match(r"more +tokmill report ", line) for line in bill)


def test_records_come_from_standard_input(tokenizer_dir, tmp_path, good, tokmill):
    words = [sys.executable, "-m", "tokmill", "pretrain", "-", "-t", str(tokenizer_dir)]
    words += ["-o", str(tmp_path / "out"), "--engine", "reference"]
    done = subprocess.run(words, input=good.read_bytes(), capture_output=True)
    assert done.returncode == 0, done.stderr
    assert manifest(tmp_path / "out")["totals"]["documents"] == 40
    assert tokmill("verify", tmp_path / "out").code == 0


def test_chinese_sections_from_standard_input_have_the_formula_as_from_a_file(
    tokenizer_dir, tmp_path
):
    section = {"title": "词源", "content": "这个词在很久以前就有了，意思和今天差不多。"}
    record = {"title": "茶", "summary": "茶是一种饮料。", "sections": [section]}
    lines = f"{json.dumps(record, ensure_ascii=False)}\n".encode() * 9
    words = [sys.executable, "-m", "tokmill", "pretrain", "-", "-t", str(tokenizer_dir), "-q"]
    words += ["-o", str(tmp_path / "out")]
    done = subprocess.run(words, input=lines, capture_output=True)
    assert done.returncode == 0, done.stderr
    assert manifest(tmp_path / "out")["totals"]["renderers"] == {"encyclopedia": 9}


# plan, verify, inspect


def test_verify_says_what_it_checked(tokmill, single):
    outcome = tokmill("verify", single.directory)
    assert outcome.code == 0
    assert f"2 shards, {len(single):,} documents, " in outcome.out
    findings = json.loads(tokmill("verify", single.directory, "--json").out)
    assert (findings["n_documents"], findings["problems"]) == (len(single), [])


def test_inspect_shows_documents_spread_over_the_dataset(tokmill, single):
    outcome = tokmill("inspect", single.directory, "--sample", "2")
    numbers = re.findall(r"^document (\d+) ", outcome.out, re.MULTILINE)
    assert len(numbers) == 2
    (line,) = tokmill("inspect", single.directory, "-n", numbers[0], "--json").out.splitlines()
    shown = json.loads(line)
    assert shown["document"] == int(numbers[0])
    assert shown["ids"] == single[int(numbers[0])].tolist()
    assert shown["text"] == single.text(int(numbers[0]))
    assert shown["text"][:40] in outcome.out


# Colour


@pytest.mark.parametrize(
    ("flags", "variables", "is_coloured"),
    [((), {}, True), (("--no-color",), {}, False), ((), {"NO_COLOR": "1"}, False)],
)
def test_a_terminal_gets_colour_unless_it_is_refused(single, flags, variables, is_coloured):
    import pty

    program = f"{sys.executable} -m tokmill {' '.join(flags)}"
    words = f"{program} inspect {single.directory} -n 0; {program} verify nowhere"
    ours, theirs = pty.openpty()
    environment = {k: v for k, v in os.environ.items() if k != "NO_COLOR"} | variables
    subprocess.run(["sh", "-c", words], stdout=theirs, stderr=theirs, env=environment, check=False)
    os.close(theirs)
    text = b""
    with open(ours, "rb", buffering=0) as terminal, suppress(OSError):  # noqa: PTH123
        while chunk := terminal.read(1 << 16):
            text += chunk
    shown, error = text.split(b"error:")
    assert single.text(0)[:10].encode() in shown
    assert (b"\x1b[" in shown) == (b"\x1b[" in error) == is_coloured


NOT_OF_PRETRAINING = (
    "IPython", "jinja2", "psutil", "pyarrow.csv", "pyarrow.dataset", "pyarrow.parquet",
    "rich", "sentencepiece", "tokmill.bill.full_bill", "tokmill.bill.host_ram", "tokmill.chat",
    "tokmill.cli.bill", "tokmill.cli.sft", "tokmill.dataset.packs", "tokmill.run.workers",
    "tokmill.loader", "tokmill.page.report", "tokmill.run.forecast",
    "tokmill.trainers", "torch", "transformers",
)  # fmt: skip


@pytest.fixture
def imports(tmp_path, tokenizer_dir):
    """Return the modules that a command on JSON Lines imports, in order."""

    def run(verb: str, *words: str) -> list[str]:
        command = [sys.executable, "-X", "importtime", "-m", "tokmill", verb, *words]
        command += ["-t", str(tokenizer_dir), "-o", str(tmp_path / "out"), "--quiet"]
        done = subprocess.run(command, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr[-900:]
        return re.findall(r"^import time: +\d+ \| +\d+ \| +(\S+)$", done.stderr, re.MULTILINE)

    return run


def named(modules: list[str], packages: tuple[str, ...]) -> list[str]:
    return [one for one in modules if any(f"{one}.".startswith(f"{p}.") for p in packages)]


def test_pretraining_imports_only_what_it_uses(imports):
    found = imports("pretrain", str(SAMPLES / "records.jsonl"))
    assert "tokmill.recipes.pretrain" in found
    assert named(found, NOT_OF_PRETRAINING) == []


def test_pretraining_on_parquet_imports_its_reader(imports):
    found = imports("pretrain", str(SAMPLES / "records.parquet"))
    assert named(found, NOT_OF_PRETRAINING)[0].startswith("pyarrow.parquet")
