"""`tokmill sft` as a user types it."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import tokmill
from tests.cli.conftest import SAMPLES, manifest, write_lines

N_CHATS = len((SAMPLES / "sft" / "chats.jsonl").read_bytes().splitlines())
PAIR = {"prompt": "hello", "completion": "there"}


@pytest.fixture
def pairs(tmp_path: Path) -> Path:
    """Prompts and completions, and a broken record behind them."""
    path = tmp_path / "pairs.jsonl"
    path.write_text((json.dumps(PAIR) + "\n") * 150 + "{bad\n")
    return path


def rows(out: str) -> dict[str, str]:
    """The rows of a summary by label."""
    return dict(re.findall(r"^(\S[\w ,]*?)  +(.*)$", out, re.MULTILINE))


def test_sft_prints_a_summary_on_stdout_and_notes_on_stderr(sft, tokmill, tmp_path):
    outcome = sft(SAMPLES / "sft" / "chats.jsonl", "--max-tokens", "4096", "--packing", "4096")
    assert outcome.code == 0
    found = rows(outcome.out)
    totals = manifest(tmp_path / "out")["totals"]
    assert found["records"] == f"{N_CHATS} = {N_CHATS - 1} samples + 1 drop + 0 rejects"
    (n_lost,) = totals["lost_tokens"].values()
    share = n_lost / (n_lost + totals["tokens"])
    assert found["drops"] == f"1 more than max_tokens ({n_lost:,} tokens, {share:.1%} of all)"
    none = "(no validation split)"
    assert found["tokens"].startswith(f"{totals['tokens']:,} {none}; text bytes per token ")
    assert found["trained"].startswith(f"{totals['trained_tokens']:,} (")
    assert re.fullmatch(r"train \d+ rows of 4,096 tokens, .* full", found["packing"])
    assert "schema: messages; template: Jinja; preset: tokmill; " in outcome.err
    assert "\x1b" not in outcome.out + outcome.err
    rest = rows(tokmill("report", tmp_path / "out").out)
    assert rest["mask"].startswith("preset tokmill, boundary split, messages as ")
    assert re.fullmatch(
        rf"{N_CHATS - 1} samples in \d+ rows of 4,096 tokens, .*", rest["packs, train"]
    )
    assert rest["rejects"] == "none"


def test_what_is_printed_is_what_the_files_hold(sft, tmp_path):
    outcome = sft(SAMPLES / "sft" / "chats.jsonl", "--json", "--preset", "trl")
    assert outcome.code == 0
    assert outcome.err == ""
    found = json.loads(outcome.out)
    assert found == manifest(tmp_path / "out")
    assert found["kind"] == "sft"
    assert (found["mask"]["preset"], found["mask"]["boundary"]) == ("trl", "joint")
    masks = [np.fromfile(path, np.uint8) for path in sorted((tmp_path / "out").glob("*.mask"))]
    assert sum(int(mask.sum()) for mask in masks) == found["totals"]["trained_tokens"]


def test_a_run_of_chats_ends_in_at_most_ten_lines_and_ten_of_the_bill(sft, tmp_path, monkeypatch):
    # Where the disk is too small for checkpoints, the row that says so takes two lines.
    free = SimpleNamespace(free=1 << 40)
    monkeypatch.setattr("tokmill.bill.on_disk.shutil.disk_usage", lambda _: free)
    chats = tmp_path / "chats.jsonl"
    broken = ["{bad", "[1]", "7", "{}", '{"messages": 7}', '{"messages": []}']
    chats.write_text((SAMPLES / "sft/chats.jsonl").read_text() + "\n".join(broken))
    words = ("--preset", "trl", "--max-tokens", "500", "--packing", "512", "--val-fraction", "0.2")
    more = ("--too-long", "window", "--min-tokens", "100", "--max-reject-fraction", "1")
    outcome = sft(chats, *words, *more, "--model", "gpt2", "--gpu", "3090")
    assert outcome.code == 0
    summary, bill = (block.splitlines() for block in outcome.out.split("\n\n"))
    assert [line.split("  ")[0] for line in summary] == [
        "records", "drops", "rejects", "unread keys", "tokens", "trained", "packing", "engine",
        "time", "output",
    ]  # fmt: skip
    assert len(bill) <= 10
    totals = manifest(tmp_path / "out")["totals"]
    read, made = totals["records"], totals["documents"]
    drops, rejects = (sum(totals[name].values()) for name in ("drops", "rejects"))
    extra = totals["extra"]
    assert extra > 0
    assert read + extra == made + drops + rejects
    assert rows(outcome.out)["records"] == (
        f"{read} + {extra} extra samples of the same records = {made} samples + {drops} drops "
        f"+ {rejects} rejects"
    )


def test_the_same_command_continues_and_another_one_is_refused(sft, pairs, tmp_path):
    outcome = sft(pairs, "--template", "plain", "--profile")
    assert outcome.code == 0
    summary, profile = outcome.out.split("\n\n")
    assert "samples " in summary
    assert {"render", "mask", "encode"} <= {line.split()[0] for line in profile.splitlines()}
    before = (tmp_path / "out" / "manifest.json").stat().st_mtime_ns
    assert sft(pairs, "--template", "plain", "--threads", "2").code == 0
    assert (tmp_path / "out" / "manifest.json").stat().st_mtime_ns == before
    outcome = sft(pairs, "--template", "plain", "--train", "-eot")
    assert outcome.code == 6
    assert "eot" in outcome.error
    assert sft(pairs, "--template", "plain", "--train", "-eot", "--overwrite").code == 0
    assert manifest(tmp_path / "out")["config"]["sft"]["train"] == ["-eot"]


def test_another_template_of_the_same_name_is_another_run(sft, pairs, tmp_path):
    template = tmp_path / "own.jinja"
    template.write_text("{% for m in messages %}{{ m.content }}{{ eos_token }}{% endfor %}")
    assert sft(pairs, "--template", template, "--spans", "prefix").code == 0
    template.write_text("{% for m in messages %}: {{ m.content }}{{ eos_token }}{% endfor %}")
    assert sft(pairs, "--template", template, "--spans", "prefix").code == 6


def test_the_configured_samples_become_a_dataset(tokmill, tmp_path, monkeypatch):
    root = SAMPLES.parent
    monkeypatch.chdir(root)
    outcome = tokmill("sft", "--config", "configs/sft.toml", "-o", tmp_path / "out", "--json")
    assert outcome.code == 0
    found = json.loads(outcome.out)
    assert found["totals"]["records"] == N_CHATS
    assert found["totals"]["rejects"] == {}
    assert {"train", "val"} == set(found["packs"])


# Records under names of their own


CLIENT = {"speaker": "Client", "utterance": "Hi"}, {"speaker": "AGENT", "utterance": "Hello."}
KNOWN = {"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello."}


def ids_and_mask(directory: Path) -> list[list[int]]:
    path = directory / "train-0000000-0000.bin"
    return [np.fromfile(one, np.uint8).tolist() for one in (path, path.with_suffix(".mask"))]


@pytest.fixture(scope="module")
def known(tmp_path_factory: pytest.TempPathFactory) -> list[list[int]]:
    """The tokens and the mask of nine chats under the names that tokmill knows."""
    place = tmp_path_factory.mktemp("known")
    path = write_lines(place / "in.jsonl", [{"messages": list(KNOWN)}] * 9)
    tokenizer = SAMPLES / "tokenizer"
    return ids_and_mask(tokmill.sft(path, tokenizer=tokenizer, output=place / "out").directory)


def test_the_advice_of_a_refusal_makes_the_run(sft, known, tmp_path):
    path = write_lines(tmp_path / "in.jsonl", [{"id": 1, "dialogue": list(CLIENT)}] * 9)
    refused = sft(path)
    assert refused.code == 2
    advice = re.search(r"name them.*?: (--.*?)( \(under \[sft\]|$)", refused.error)[1]
    outcome = sft(path, *shlex.split(advice))
    assert ids_and_mask(tmp_path / "out") == known
    assert "unread keys  id 9\n" in outcome.out


def test_a_chat_that_begins_with_the_assistant_says_what_the_template_lacks(sft, tmp_path):
    path = write_lines(tmp_path / "in.jsonl", [{"messages": [KNOWN[1], *KNOWN]}] * 9)
    template = tmp_path / "template.jinja"
    template.write_text(
        "{% if messages[0]['role'] == 'x' %}y{% endif %}{% for m in messages %}<|im_start|>"
        "{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
        "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
    )
    refused = sft(path, "--template", template)
    assert "message 1 is the assistant's, and this template cannot ask for a reply" in refused.error
    assert "such as --template chatml" in refused.error
    assert sft(path, "--template", "chatml", "--overwrite").code == 0


ANSWERS = {"chosen": "Hello.", "rejected": "No."}
CHATS = {"chosen": list(KNOWN), "rejected": [KNOWN[0], {"role": "assistant", "content": "No."}]}


@pytest.mark.parametrize(
    "record",
    [
        {"prompt": "Hi", **ANSWERS},
        {"prompt": [KNOWN[0]], "chosen": [KNOWN[1]], "rejected": []},
        CHATS,
        {"messages": list(KNOWN), "rejected_response": "No."},
    ],
)
def test_the_advice_for_preference_data_makes_the_run(sft, known, tmp_path, record):
    path = write_lines(tmp_path / "in.jsonl", [record] * 9)
    refused = sft(path)
    assert refused.code == 2
    advice = refused.error.partition("to train on: ")[2].partition(" trains")[0]
    outcome = sft(path, *shlex.split(advice))
    assert ids_and_mask(tmp_path / "out") == known
    if record.get("rejected", True):
        assert "rejected" in outcome.out.partition("unread keys")[2]


def test_empty_think_blocks_beside_reasoning_are_a_warning_everywhere(sft, tokmill, tmp_path):
    user = {"role": "user", "content": "q"}
    replies = [
        {"role": "assistant", "content": "a"},
        {"role": "assistant", "content": "a", "reasoning_content": "t"},
    ]
    lines = [json.dumps({"messages": [user, reply]}) for reply in replies]
    chats = tmp_path / "mixed.jsonl"
    chats.write_text("\n".join(lines))
    options = (chats, "--tokenizer", SAMPLES / "tokenizer", "--template", "qwen3-training")
    expected = "1 of 2 trained replies begin with an empty think block"
    planned = tokmill("plan", *options, "--recipe", "sft")
    assert expected in planned.err
    made = sft(chats, "--template", "qwen3-training")
    assert expected in rows(made.out)["warning"]
    page = tmp_path / "page.html"
    assert tokmill("report", tmp_path / "out", "--html", page).code == 0
    assert expected in page.read_text()
    quiet = sft(chats, "--template", "qwen3-training", "--train=-empty-reasoning", "--overwrite")
    assert "empty think block" not in quiet.out
