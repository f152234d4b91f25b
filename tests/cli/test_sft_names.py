"""Records under names of their own, through `tokmill sft` as a user sees it."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.cli.conftest import write_lines

CLIENT = {"speaker": "Client", "utterance": "Hi"}, {"speaker": "AGENT", "utterance": "Hello."}
KNOWN = {"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello."}
FIELDS = "messages=dialogue,role=speaker,content=utterance"


@pytest.fixture
def made(sft: Callable[..., Any], tmp_path: Path) -> Callable[..., tuple[Any, ...]]:
    """Return a function that runs `sft` and returns the tokens, their mask and what was printed."""

    def run(*arguments: str | Path) -> tuple[Any, ...]:
        outcome = sft("--overwrite", *arguments)
        assert outcome.code == 0, outcome.err
        tokens = np.fromfile(tmp_path / "out/train-0000000-0000.bin", np.uint8).tolist()
        mask = np.fromfile(tmp_path / "out/train-0000000-0000.mask", np.uint8).tolist()
        return tokens, mask, outcome

    return run


def test_the_advice_of_a_refusal_makes_the_run(sft, made, tmp_path):
    path = write_lines(tmp_path / "in.jsonl", [{"id": 1, "dialogue": list(CLIENT)}] * 9)
    refused = sft(path)
    assert refused.code == 2
    advice = refused.error.partition("name them: ")[2].partition(" (under [sft]")[0]
    found = made(path, *shlex.split(advice))
    known = made(write_lines(tmp_path / "known.jsonl", [{"messages": list(KNOWN)}] * 9))
    assert found[:2] == known[:2]
    assert "unread keys  id 9\n" in found[2].out


def test_names_add_up_over_options_and_stand_in_a_file(made, tmp_path, monkeypatch):
    path = write_lines(tmp_path / "in.jsonl", [{"dialogue": list(CLIENT)}] * 9)
    roles = ("--role-names", "client=user", "--role-names", "agent=assistant")
    fields = [word for pair in FIELDS.split(",") for word in ("--fields", pair)]
    found = made(path, *fields, *roles)
    config = tmp_path / "run.toml"
    config.write_text(
        '[sft.fields]\nmessages = "dialogue"\nrole = "speaker"\ncontent = "utterance"\n'
        '[sft.role_names]\nclient = "user"\nagent = "assistant"\n'
    )
    assert made(path, "--config", config)[:2] == found[:2]
    monkeypatch.setenv("TOKMILL_SFT_FIELDS", FIELDS)
    monkeypatch.setenv("TOKMILL_ROLE_NAMES", "client=user, agent=assistant")
    assert made(path)[:2] == found[:2]


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
        {"instruction": "Hi", "input": "", **ANSWERS},
        {"prompt": [KNOWN[0]], "chosen": [KNOWN[1]], "rejected": []},
        CHATS,
        {"prompt": "Hi", **CHATS},
        {"messages": list(KNOWN), "rejected_response": "No."},
        {"prompt": "Hi", "response": "Hello.", **ANSWERS},
    ],
)
def test_the_advice_for_preference_data_makes_the_run(sft, made, tmp_path, record):
    path = write_lines(tmp_path / "in.jsonl", [record] * 9)
    refused = sft(path)
    assert refused.code == 2
    advice = refused.error.partition("to train on: ")[2].partition(" trains")[0]
    found = made(path, *shlex.split(advice))
    known = made(write_lines(tmp_path / "known.jsonl", [{"messages": list(KNOWN)}] * 9))
    assert found[:2] == known[:2]
    if record["rejected" if "rejected" in record else "rejected_response"]:
        assert "rejected" in found[2].out.partition("unread keys")[2]
