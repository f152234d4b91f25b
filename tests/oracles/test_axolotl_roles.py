"""Other roles than the assistant, trained as axolotl's `roles_to_train` trains them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import tokmill
from tests.oracles.conftest import import_or_skip

pytestmark = pytest.mark.filterwarnings("ignore")

TOKENIZER = Path(__file__).parents[2] / "data_samples" / "tokenizer"
EOS = "<|im_end|>"
TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content|trim }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
WORDS = ("Hello there", " two\nlines\n", "字 and é", "the same", '{"a": "b"}')


@pytest.fixture(scope="module", autouse=True)
def axolotl() -> None:
    import_or_skip("axolotl.prompt_strategies.chat_template")


def chats() -> list[list[dict[str, str]]]:
    made = []
    for n in range(60):
        turns = [{"role": "system", "content": WORDS[n % 5]}] * (n % 2)
        for turn in range(1 + n % 3):
            turns.append({"role": "user", "content": f"{WORDS[(n + turn) % 5]}?"})
            turns.append({"role": "assistant", "content": WORDS[(n + 2 * turn) % 5]})
        made.append(turns)
    return made


@pytest.mark.parametrize("roles", [["user"], ["system", "user", "assistant"]])
def test_ids_and_labels_are_those_of_axolotl_s_roles_to_train(roles, tmp_path) -> None:
    from axolotl.prompt_strategies.chat_template import ChatTemplatePrompter, ChatTemplateStrategy
    from transformers import PreTrainedTokenizerFast

    (tmp_path / "t.jinja").write_text(TEMPLATE)
    rows = [{"messages": turns} for turns in chats()]
    (tmp_path / "chats.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    dataset = tokmill.sft(
        tmp_path / "chats.jsonl", tokenizer=TOKENIZER, eos_token=EOS, roles=roles,
        template=str(tmp_path / "t.jinja"), output=tmp_path / "out",
    )  # fmt: skip
    theirs: Any = PreTrainedTokenizerFast(
        tokenizer_file=str(TOKENIZER / "tokenizer.json"), eos_token=EOS, pad_token=EOS
    )
    keys = {"role": "role", "content": "content"}
    prompter = ChatTemplatePrompter(theirs, chat_template=TEMPLATE, message_property_mappings=keys)
    strategy = ChatTemplateStrategy(
        prompter, theirs, False, 4096, roles_to_train=roles, train_on_eos="turn"
    )
    assert len(dataset) == len(rows)
    for i, row in enumerate(rows):
        expected = strategy.tokenize_prompt(dict(row))
        assert dataset[i].tolist() == expected["input_ids"]
        assert [label != -100 for label in expected["labels"]] == dataset.mask(i).astype(
            bool
        ).tolist()
