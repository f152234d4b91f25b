"""Records under names of their own, through `tokmill sft` as a user sees it."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import numpy as np
import pytest

import tokmill
from tests.cli.conftest import SAMPLES, write_lines

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
