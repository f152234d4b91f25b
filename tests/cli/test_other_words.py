"""Options as other programs name them: the message says which option is meant."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import tokmill as library
from tokmill.cli.inspect import command as inspect
from tokmill.cli.memory import command as memory
from tokmill.cli.pretrain import command as pretrain
from tokmill.cli.sft import command as sft
from tokmill.errors import UsageError
from tokmill.settings.other_words import _MEANT


@pytest.mark.parametrize(
    ("words", "instead"),
    [
        (("--zero", "3"), "No such option '--zero': use --sharding zero-3"),
        (("--bf16",), "'--bf16': use --precision auto (mixed, as trainers do), or pure-16"),
        (("--batch-size", "8"), "No such option '--batch-size': use --micro-batch"),
        (("--seq_len", "4096"), "No such option '--seq_len': use --sequence"),
        (("--load-in-4bit",), "use --weight-type (inference) or --adapter qlora (training)"),
        (("--qlora",), "No such option '--qlora': use --adapter qlora"),
        (("gpt2",), "Got unexpected extra argument (gpt2): use --model NAME"),
    ],
)
def test_a_common_name_of_another_program_leads_to_the_option(
    tokmill: Callable[..., Any], words: tuple[str, ...], instead: str
) -> None:
    outcome = tokmill("memory", *words)
    assert outcome.code == 2
    assert outcome.error.endswith(instead)


def test_what_a_command_lacks_is_not_offered(tokmill: Callable[..., Any]) -> None:
    assert "micro-batch" not in tokmill("verify", "out", "--batch-size", "8").error


BILL = "is a setting of the bill: tokmill memory and tokmill report take it, or [training] of a "


@pytest.mark.parametrize(
    ("words", "advice"),
    [
        (("pretrain", "a", "--micro-batch", "4"), f"--micro-batch {BILL}--config file"),
        (("plan", "a", "--sequence", "512"), f"--sequence {BILL}--config file"),
        (("plan", "a", "--gpus", "8"), f"--gpus {BILL}--config file"),
        (("sft", "a", "--seq-length", "512"), f"--sequence {BILL}--config file"),
        (("pretrain", "a", "--packing", "4096"), "--packing is a setting of tokmill sft"),
        (("sft", "a", "--renderer", "text"), "--renderer is a setting of tokmill pretrain"),
        (("pretrain", "a", "--shuffle"), "shuf corpus.jsonl > shuffled.jsonl"),
        (("pretrain", "a", "--seed", "1"), "tokmill.loader shuffles samples by a seed, as trainers "
         "do; to shuffle records: shuf corpus.jsonl > shuffled.jsonl"),
        (("sft", "a", "--dedup"), "tokmill keeps every record: remove duplicates from the input"),
        (("pretrain", "a", "--limit", "9"), "head -n 1000 corpus.jsonl > few.jsonl"),
        (("pretrain", "a", "--num-workers", "9"), "No such option '--num-workers': use --workers"),
        (("inspect", "a", "--limit", "9"), "No such option '--limit': use --sample"),
        (("memory", "--precision", "bf16"), "use --precision auto (mixed, as trainers do), or "
         "pure-16"),
        (("memory", "--sharding", "fsdp2"), "'distributed-optimizer': use --sharding fsdp"),
        (("memory", "--sharding", "nothing"), "'fsdp', 'fsdp-grad-op', 'distributed-optimizer'."),
        (("pretrain", "a", "--decision", "9"), "No such option '--decision'."),
        (("pretrain", "a", "--val-fractoin", "9"), "Did you mean '--val-fraction'?"),
    ],
)  # fmt: skip
def test_a_word_of_another_place_or_program_gets_a_pointer_and_no_wild_guess(
    tokmill: Callable[..., Any], words: tuple[str, ...], advice: str
) -> None:
    outcome = tokmill(*words)
    assert outcome.code == 2
    assert outcome.error.endswith(advice)


@pytest.mark.parametrize(
    ("settings", "advice"),
    [
        ({"micro_batch": 4}, "micro_batch is a setting of the bill: tokmill.bill and Dataset.bill "
         "take it, or [training] of a config file"),
        ({"packing": 9}, "packing: no such setting: packing is a setting of tokmill.sft"),
        ({"shuffle": True}, "to shuffle records: shuf corpus.jsonl > shuffled.jsonl"),
        ({"dedup": True}, "tokmill keeps every record: remove duplicates from the input"),
        ({"limit": 3}, "head -n 1000 corpus.jsonl > few.jsonl"),
        ({"num_proc": 3}, "num_proc: no such setting: use workers"),
    ],
)  # fmt: skip
def test_a_keyword_argument_of_another_place_or_program_gets_a_pointer(
    settings: dict[str, Any], advice: str
) -> None:
    with pytest.raises(UsageError) as caught:
        library.pretrain("a.jsonl", tokenizer="t", output="o", **settings)
    assert str(caught.value).endswith(advice)
    with pytest.raises(UsageError, match=r"found 'fsdp2': use sharding=.fsdp.$"):
        library.bill.of("gpt2", sharding="fsdp2")


def test_every_offered_option_exists_and_every_other_name_does_not() -> None:
    commands = [memory, pretrain, sft, inspect]
    options = [{option for p in command.params for option in p.opts} for command in commands]
    for offer, names in _MEANT.items():
        offered = {word for word in offer.split() if word.startswith("--")}
        having = [known for known in options if offered <= known]
        assert having, offer
        assert not {f"--{name}" for name in names.split()} & set.union(*having)
