"""Reasoning inside replies, held against transformers' rendering of the same turns with fields."""

from __future__ import annotations

import json
import warnings
from pathlib import Path

import pytest
from tokenizers import Tokenizer as Library

from tests.chat.test_inline_tags import DROPS, FIELD
from tests.oracles.masks_ours import Case, Ours, Sample
from tokmill.settings.sft import SftSettings

with warnings.catch_warnings():
    # Importing them warns of optional packages that are not here, as UserWarning and others.
    warnings.simplefilter("ignore")
    pytest.importorskip("transformers", reason="the oracle is not installed: make oracles")

SAMPLES = Path(__file__).parents[2] / "data_samples"
MINIMIND = """{%- for m in messages %}{{- '<|im_start|>' + m.role + '\n' }}
{%- if m.role == 'assistant' %}
{%- set reasoning = m.reasoning_content if m.reasoning_content is string else '' %}
{{- '<think>\n' + reasoning.strip('\n') + '\n</think>\n\n' + m.content.lstrip('\n') }}
{%- else %}{{- m.content }}{%- endif %}{{- '<|im_end|>\n' }}{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\n' }}{%- endif %}"""
"""What minimind's template writes of replies, whose tags it reads itself as Qwen3's does."""

REASONING = ("2 and 2 is 4", "\u3000first\n\nthen `</b>`", "", "let me see: 猫 <eos> 👍 ")
ANSWERS = ("It is 4.", "是的", "a\n\nb </think> c", "\tno")
CALL = {"name": "add", "arguments": {"x": [1, None], "y": "猫"}}


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory) -> Path:
    """The sample tokenizer with the tokens of all templates."""
    directory = tmp_path_factory.mktemp("tokenizer")
    library = Library.from_file(str(SAMPLES / "tokenizer" / "tokenizer.json"))
    library.add_special_tokens(["<|user_start|>", "<|assistant_start|>"])
    library.add_tokens(["<think>", "</think>", "<tool_call>", "</tool_call>"])
    library.save(str(directory / "tokenizer.json"))
    (directory / "tokenizer_config.json").write_text(json.dumps({"eos_token": "<eos>"}))
    return directory


@pytest.fixture
def ours(tokenizer, tmp_path):
    def run(template: str, *reply: str) -> list[list[int]]:
        """Return the ids that tokmill writes of a question and each reply."""
        name = template
        if "{" in template:
            (tmp_path / "t.jinja").write_text(template)
            name = str(tmp_path / "t.jinja")
        settings = SftSettings(template=name, boundary="joint")
        asked = [{"role": "user", "content": "Q"}]
        texts = [
            json.dumps({"messages": [*asked, {"role": "assistant", "content": r}]}) for r in reply
        ]
        found = Ours(Case(tokenizer, settings, "<eos>"), parse=False).outcomes(texts)
        samples = [sample for sample in found if isinstance(sample, Sample)]
        assert len(samples) == len(found), found
        return [sample.ids for sample in samples]

    return run


@pytest.fixture
def reference(tokenizer):
    """Return what transformers writes of messages, whose texts hold no control token."""
    from transformers import PreTrainedTokenizerFast

    library = PreTrainedTokenizerFast(tokenizer_file=str(tokenizer / "tokenizer.json"))

    def run(template: str, *messages: dict, prompt: bool = False, behind: str = "") -> list[int]:
        text = library.apply_chat_template(
            [{"role": "user", "content": "Q"}, *messages],
            chat_template=template, tokenize=False, add_generation_prompt=prompt,
        )  # fmt: skip
        return library(text + behind, add_special_tokens=False)["input_ids"]

    return run


def cases() -> list[tuple[str, str]]:
    """Reasoning and answers in which no string of a control token stands, as there it is text."""
    found = [(r, a) for r in REASONING for a in ANSWERS]
    return [(r, a) for r, a in found if not {"<eos>", "</think>"} & {*r.split(), *a.split()}]


@pytest.mark.parametrize(
    ("template", "source"), [(FIELD, FIELD), (MINIMIND, MINIMIND), ("minimind", MINIMIND)]
)
def test_a_block_inside_a_reply_is_what_its_reasoning_field_would_be(
    ours, reference, template, source
):
    replies = [f"<think>\n{r}\n</think>\n\n{a}" for r, a in cases()]
    fields = [{"role": "assistant", "content": a, "reasoning_content": r} for r, a in cases()]
    assert ours(template, *replies) == [reference(source, message) for message in fields]


def test_behind_a_prompt_that_opens_a_block_it_is_what_the_model_would_say(ours, reference):
    said = [f"{r}\n</think>\n\n{a}" for r, a in cases()]
    expected = [reference(DROPS, prompt=True, behind=text + "<eos>") for text in said]
    assert ours(DROPS, *[f"<think>\n{text}" for text in said]) == expected


@pytest.mark.parametrize("before", ["", "I look."])
def test_calls_inside_a_reply_are_what_their_field_would_be(ours, reference, before):
    written = json.dumps(CALL, ensure_ascii=False, indent=1)
    reply = f"{before}\n<tool_call>\n{written}\n</tool_call>\n"
    message = {
        "role": "assistant",
        "content": before,
        "tool_calls": [{"type": "function", "function": CALL}],
    }
    assert ours(FIELD, reply) == [reference(FIELD, message)]
