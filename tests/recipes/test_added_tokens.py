"""The string of an added token in a message is data, whether the token is marked special or not."""

from __future__ import annotations

import json

import pytest
from tokenizers import AddedToken, Tokenizer

import tokmill
from tokmill.chat.control_strings import KEPT_CONTROL

MARKS = ("<|fim_prefix|>", "|||IP_ADDRESS|||", "</s>")
ORDINARY = ("    ", "hello", "±")


@pytest.fixture
def tokens(tokenizer_dir, tmp_path) -> tuple[str, dict[str, int]]:
    """The tiny tokenizer with six more tokens, none of them special, and their ids."""
    library = Tokenizer.from_file(str(tokenizer_dir / "tokenizer.json"))
    library.add_tokens([AddedToken(one, normalized=False) for one in (*MARKS, *ORDINARY)])
    folder = tmp_path / "added"
    folder.mkdir()
    library.save(str(folder / "tokenizer.json"))
    config = (tokenizer_dir / "tokenizer_config.json").read_text()
    (folder / "tokenizer_config.json").write_text(config)
    ids = {one: library.token_to_id(one) for one in (*MARKS, *ORDINARY)}
    return str(folder), ids


@pytest.fixture
def run(tokens, write_rows, tmp_path):
    """Return a function that makes a dataset of one chat in which all six strings stand."""

    def make(**settings) -> tokmill.Dataset:
        text = " a ".join((*MARKS, *ORDINARY))
        turns = [{"role": "user", "content": text}, {"role": "assistant", "content": text}]
        rows = write_rows(tmp_path / "in.jsonl", [{"messages": turns}])
        chosen = {"template": "plain", **settings}
        return tokmill.sft(
            rows, tokenizer=tokens[0], output=tmp_path / "out", progress=False, **chosen
        )

    return make


@pytest.mark.parametrize(
    ("engine", "template"),
    [
        ("reference", "jinja"),
        ("gigatoken", "plain"),
        ("gigatoken", "jinja"),
        ("fastokens", "plain"),
    ],
)
def test_only_added_tokens_that_encode_ordinary_text_are_parsed(
    run, tokens, tmp_path, engine, template
) -> None:
    (tmp_path / "jinja").write_text(
        "{% for m in messages %}<|im_start|>{{ m.role }}\n"
        "{% generation %}{{ m.content }}<eos>{% endgeneration %}{% endfor %}"
    )
    name = template if template == "plain" else str(tmp_path / "jinja")
    dataset, ids = run(engine=engine, template=name), tokens[1]
    found = set(dataset[0].tolist())
    assert found.isdisjoint(ids[one] for one in MARKS)
    assert found.issuperset(ids[one] for one in ORDINARY)
    assert dataset.manifest["totals"]["counters"][KEPT_CONTROL] == 2 * len(MARKS)
    dataset.verify()


def test_all_are_parsed_if_that_is_asked_for(run, tokens) -> None:
    dataset = run(control_tokens_in_text="parse")
    assert set(dataset[0].tolist()).issuperset(tokens[1].values())
    assert KEPT_CONTROL not in dataset.manifest["totals"].get("counters", {})


def test_records_with_such_a_string_can_be_rejected(run) -> None:
    with pytest.raises(tokmill.TokmillError, match="control token in text"):
        run(control_tokens_in_text="reject")


def test_a_token_that_the_template_writes_is_a_token_there_alone(run, tokens, tmp_path) -> None:
    (tmp_path / "t.jinja").write_text(
        "{% for m in messages %}<|fim_prefix|>{% generation %}{{ m.content }}<eos>"
        "{% endgeneration %}{% endfor %}"
    )
    dataset = run(template=str(tmp_path / "t.jinja"))
    assert dataset[0].tolist().count(tokens[1]["<|fim_prefix|>"]) == 2


def test_pretraining_has_the_ids_of_the_reference(tokens, write_rows, tmp_path) -> None:
    text = " a ".join((*MARKS, *ORDINARY))
    rows = write_rows(tmp_path / "in.jsonl", [{"text": text}])
    dataset = tokmill.pretrain(rows, tokenizer=tokens[0], output=tmp_path / "o", progress=False)
    library = Tokenizer.from_file(f"{tokens[0]}/tokenizer.json")
    assert dataset[0].tolist()[:-1] == library.encode(text).ids
    assert json.loads(library.to_str())["added_tokens"][-1]["special"] is False
