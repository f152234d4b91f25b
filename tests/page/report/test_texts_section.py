"""The samples on the page: what is trained is seen, however long the rest is."""

from __future__ import annotations

import json
import re
from html import unescape

import pytest

import tokmill
from tests.fixtures.datasets import TOKENIZER
from tokmill.page.report.texts_section import texts_section


@pytest.fixture
def html(tmp_path) -> str:
    """The section of one chat with a long question."""
    question = "first " + "word " * 900 + "last"
    messages = [
        {"role": "user", "content": question},
        {"role": "assistant", "content": "The reply that is trained."},
        {"role": "user", "content": "A short question."},
        {"role": "assistant", "content": "long " * 200},
    ]
    path = tmp_path / "chats.jsonl"
    path.write_text(json.dumps({"messages": messages}))
    made = tokmill.sft(path, tokenizer=TOKENIZER, output=tmp_path / "out", progress=False)
    return texts_section(made.directory, made.manifest, "", [0]).html


def test_the_middle_of_long_untrained_text_is_left_out(html: str) -> None:
    text = unescape(re.sub("<[^>]*>", "", html))
    assert "first word" in text
    assert "word last" in text
    found = re.search(r"\[…([\d,]+) characters…\]", text)
    assert found
    n_left_out = int(found[1].replace(",", ""))
    assert text.count("word ") * 5 + n_left_out == pytest.approx(4500, abs=30)
    assert "A short question." in text


def test_trained_text_is_shown_and_never_shortened(html: str) -> None:
    assert "The reply that is trained." in html
    marked = "".join(re.findall(r'<mark class="t">(.*?)</mark>', html, re.DOTALL))
    assert marked.count("long ") > 150
    assert "characters…]" not in marked
