"""`tokmill memory --states`: what people ask about states, each by one command on 80 columns.

The amounts are arithmetic by hand; docs/memory.md has the same commands in a table.
"""

from __future__ import annotations

import json
import re
import shlex
from typing import Any

import pytest
from click.testing import CliRunner

from tests.docs.pages import read
from tokmill.cli.main import cli

GB, GIB = 10**9, 2**30
GPT2_LAYER = 12 * 768**2 + 13 * 768


def gb(n_bytes: float) -> str:
    return f"{n_bytes / GB:.2f}"


def row(name: str, *cells: str) -> str:
    """Return a pattern of a table's row: a name, and cells beside each other."""
    return rf"^ +{re.escape(name)} +{' +'.join(map(re.escape, cells))}(?: |$)"


def states(bytes_of: dict[str, float], elements: float) -> list[str]:
    """Return the rows of states with these bytes per parameter, and of their total."""
    bytes_of = {**bytes_of, "total": sum(bytes_of.values())}
    return [
        row(name, f"{each:g}", gb(each * elements), f"{each * elements / GIB:.2f}")
        for name, each in bytes_of.items()
    ]


MIXED_16 = {
    "weights": 2, "fp32 copy of the weights": 4, "gradients": 2, "first moment": 4,
    "second moment": 4,
}  # fmt: skip
MIXED_18 = {**MIXED_16, "gradients": 4}
MIXED_20 = {**MIXED_16, "fp32 copy of the gradients": 4}
INT4 = 0.5 + 2.5 / 128
"""A scale of 2 bytes and a zero of half a byte for 128 weights."""
RULE = 0.3 * 2 * 8e9

QUESTIONS: dict[str, list[str]] = {
    "--parameters 1B --precision mixed-16 --states": states(MIXED_16, 1e9),
    "--parameters 1B --precision mixed-18 --states": states(MIXED_18, 1e9),
    "--parameters 1B --precision mixed-20 --states": states(MIXED_20, 1e9),
    "--parameters 8B --precision mixed-16 --states": [
        *states(MIXED_16, 8e9),
        row("rule of thumb: activations 30% of 16-bit weights", "0.6", gb(RULE)),
        row("total with these", "16.6", gb(16 * 8e9 + RULE)),
    ],
    "--model llama-3-8b --precision mixed-16 --states": [
        row("weights", "2", gb(2 * 8_030_261_248)),
        row("total", "16", gb(16 * 8_030_261_248)),
        row("total with these", "16.6", gb(16.6 * 8_030_261_248)),
    ],
    "--parameters 7.5B --gpus 64 --states": [
        r"^by sharding, GB +weights +gradients +copies +moments +total$",
        row("ddp, amp", "30.00", "30.00", "0.00", "60.00", gb(7.5e9 * 16)),
        row("zero-1, mixed-16", "15.00", "15.00", "0.47", "0.94", gb(7.5e9 * (4 + 12 / 64))),
        row("zero-2, mixed-16", "15.00", "0.23", "0.47", "0.94", gb(7.5e9 * (2 + 14 / 64))),
        row("zero-3, mixed-16", "0.23", "0.23", "0.47", "0.94", gb(7.5e9 * 16 / 64)),
    ],
    "--parameters 1B --precision fp32 --states": [
        r"^by optimizer, GB +weights +gradients +copies +moments +total$",
        row("sgd, fp32", "4.00", "4.00", "0.00", "0.00", "8.00"),
        row("momentum, fp32", "4.00", "4.00", "0.00", "4.00", "12.00"),
        row("adamw, fp32", "4.00", "4.00", "0.00", "8.00", "16.00"),
        # A quarter of Adam's: a byte for each moment, and a fp32 scale for 256 of them.
        row("adamw-8bit, fp32", "4.00", "4.00", "0.00", gb(2 * 1e9 * (1 + 4 / 256)), "10.03"),
    ],
    "--parameters 1B --states": [
        r"^weights by type, GB +fp32 +bf16 +int8 +int4$",
        row("alone", "4.00", "2.00", "1.00", "0.50"),
        row("with scales; head, embedding 16 bit", "4.00", "2.00", "1.00", gb(1e9 * INT4)),
    ],
    "--parameters 1.5B --flat-buffer --states": [
        row("flattened fp32 buffer", "4", "6.00"),
    ],
    "--model gpt2 --states --explain": [
        row("attn.c_attn", "3 d^2 + 3 d", f"{3 * 768**2 + 3 * 768:,}"),
        row("attn.c_proj", "d^2 + d", f"{768**2 + 768:,}"),
        row("mlp.c_fc", "4 d^2 + 4 d", f"{4 * 768**2 + 4 * 768:,}"),
        row("mlp.c_proj", "4 d^2 + d", f"{4 * 768**2 + 768:,}"),
        row("ln_1", "2 d", "1,536"),
        row("sum", "12 d^2 + 13 d", f"{GPT2_LAYER:,}"),
    ],
}  # fmt: skip


def run(options: str) -> str:
    words = ["memory", *shlex.split(options)]
    result = CliRunner().invoke(cli, words, env={"COLUMNS": "80"})
    assert result.exit_code == 0, result.exception
    return result.output


def as_json(options: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(run(f"{options} --json"))
    return found


@pytest.mark.parametrize("options", QUESTIONS)
def test_each_question_is_answered_on_the_first_screen(options: str) -> None:
    screen = run(options).splitlines()[:24]
    assert max(map(len, screen)) <= 80
    for pattern in QUESTIONS[options]:
        assert re.search(pattern, "\n".join(screen), re.MULTILINE), pattern


def test_the_page_has_the_same_commands() -> None:
    named = re.findall(r"`tokmill memory ([^`]+ --states[^`]*)`", read("docs/memory.md"))
    assert list(dict.fromkeys(named)) == list(QUESTIONS)


def test_states_are_those_of_the_bill() -> None:
    how = "--model llama-3-8b --gpus 8 --sharding zero-2 --optimizer adamw-8bit"
    lines = {line["name"]: line for line in as_json(how)["training"]["moments"][-1]["lines"]}
    found = as_json(f"{how} --states")
    assert len(found["states"]["lines"]) >= 5
    for line in found["states"]["lines"]:
        assert line == lines[line["name"]]
    assert found["states"]["bytes"] == sum(line["bytes"] for line in found["states"]["lines"])


def test_json_has_all_tables_and_the_scheme() -> None:
    found = as_json("--model gpt2 --gpus 2 --states")
    assert list(found) == [
        "schema", "model", "parameters", "precision", "training", "notes", "states", "besides",
        "offloaded", "by_sharding", "by_optimizer", "by_type", "layer",
    ]  # fmt: skip
    assert (found["precision"], found["parameters"]) == ("amp", 124_439_808)
    assert found["by_sharding"]["zero-3, mixed-16"]["total"] == 16 * 124_439_808 // 2
    assert found["by_type"]["alone"]["int8"] == 124_439_808
    assert sum(sum(part.values()) for part in found["layer"].values()) == GPT2_LAYER


def test_explained_states_have_formula_symbols_and_source() -> None:
    out = " ".join(run("--model gpt2 --states --explain").split())
    assert "weights = (q_trained * P_trained + q_frozen * P_frozen" in out
    assert "rule of thumb: activations 30% of 16-bit weights = 0.3 * 2 * P" in out
    assert "known error: too low by an order of magnitude" in out


def test_offloaded_states_are_in_the_host_ram_of_a_node() -> None:
    how = "--parameters 1B --gpus 8 --sharding zero-2 --offload optimizer --states"
    out = run(how)
    assert "offloaded to the host RAM of a node: 16 GB" in out
    assert "ddp" not in out, "it has no offload"


def test_it_stands_alone() -> None:
    result = CliRunner().invoke(cli, ["memory", "--model", "gpt2", "--states", "--compare"])
    assert "--states: leave out --compare" in str(result.exception)
