"""Each row of docs/sft-options.md is so: its options run, and train what the trainer's rule trains.

The options are those of the page. What they train is what the trainer's own code makes of the same
records: it was read, and run where it runs without a model. Trained text stands between « and »,
a weight other than 1 before it.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from tokenizers import Tokenizer as Library

import tokmill
from tests.docs.pages import ROOT, read
from tokmill.cli.main import cli

pytestmark = pytest.mark.usefixtures("rendered_here")

NOT_YET = {}
"""Rows whose options are not built: trainer and option."""

PAGE = "docs/sft-options.md"
N_MERGES = 300
"""Of the sample tokenizer: a small one loads in a millisecond, and more than 100 runs load it."""
ENDED = """{% for m in messages %}{{ '[' + m.role + ']' + m.content + '<|im_end|>' }}{% endfor %}
{%- if add_generation_prompt %}{{ '[assistant]' }}{% endif %}"""
"""The template that `x.jinja` stands for: without generation tags."""
ENDLESS = ENDED.replace(" + '<|im_end|>'", "")


# The page


@dataclass(frozen=True)
class Row:
    """A row of a table: the trainer's option, and the cell that says how tokmill does it."""

    trainer: str
    option: str
    cell: str

    @property
    def options(self) -> list[str]:
        """The arguments of the first code in the cell that has any."""
        spans = re.findall(r"`([^`]+)`", self.cell)
        return shlex.split(next((span for span in spans if span.startswith("--")), ""))


def page_rows() -> Iterator[Row]:
    trainer = ""
    for line in read(PAGE).splitlines():
        if line.startswith("## "):
            trainer = line.removeprefix("## ")
        elif line.startswith("| ") and not line.startswith("| option |"):
            cells = re.split(r"(?<!\\)\|", line)[1:-1]
            option, cell = (part.strip().replace("\\|", "|") for part in cells)
            yield Row(trainer, option.replace("`", ""), cell)


ROWS = {(row.trainer, row.option): row for row in page_rows()}


# What a run made


@dataclass(frozen=True)
class Made:
    """The samples of a run, in the order of the records."""

    dataset: tokmill.Dataset
    library: Library

    @cached_property
    def samples(self) -> list[tuple[list[int], list[float]]]:
        """The ids and the weights of each sample."""
        has_weights = any(self.dataset.directory.glob("*.weight"))
        weights = self.dataset.weight if has_weights else self.dataset.mask
        return [(self.dataset[i].tolist(), weights(i).tolist()) for i in range(len(self.dataset))]

    def shown(self) -> list[str]:
        return [self.marked(*sample) for sample in self.samples]

    def marked(self, ids: list[int], weights: list[float]) -> str:
        """Return the text, with each run of tokens of one weight decoded by itself."""
        edges = [0, *(np.flatnonzero(np.diff(weights)) + 1).tolist(), len(ids)]
        text = ""
        for start, stop in pairwise(edges):
            piece = self.library.decode(ids[start:stop], skip_special_tokens=False)
            factor = "" if weights[start] in (0, 1) else f"{weights[start]:g}"
            text += f"{factor}«{piece}»" if weights[start] else piece
        return text

    def trained(self) -> str:
        pairs = [pair for sample in self.samples for pair in zip(*sample, strict=True)]
        return self.library.decode([id_ for id_, w in pairs if w], skip_special_tokens=False)


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Library]:
    """The directory of the sample tokenizer with few merges, and the library's own object."""
    source = ROOT / "data_samples" / "tokenizer"
    content = json.loads((source / "tokenizer.json").read_bytes())
    model = content["model"]
    model["merges"] = model["merges"][:N_MERGES]
    pairs = (m.split(" ") if isinstance(m, str) else m for m in model["merges"])
    kept = {"".join(pair) for pair in pairs} | {
        token["content"] for token in content["added_tokens"]
    }
    words = sorted(model["vocab"], key=model["vocab"].get)
    words = [word for word in words if len(word) == 1 or word in kept]
    model["vocab"] = {word: number for number, word in enumerate(words)}
    directory = tmp_path_factory.mktemp("tokenizer")
    (directory / "tokenizer.json").write_text(json.dumps(content))
    config = json.loads((source / "tokenizer_config.json").read_bytes())
    (directory / "tokenizer_config.json").write_text(
        json.dumps({key: config[key] for key in ("eos_token", "bos_token", "chat_template")})
    )
    return directory, Library.from_file(str(directory / "tokenizer.json"))


@dataclass(frozen=True)
class Runs:
    """Runs `tokmill sft` over records; the same run is made once."""

    tokenizer: Path
    library: Library
    directory: Path
    done: dict[str, Made] = field(default_factory=dict)

    def __call__(self, options: list[str], *records: Any) -> Made:
        """Return what the options make; the template is chatml where they name none."""
        if not {"--template", "torchtune"} & set(options):
            options = ["--template", "chatml", *options]
        key = json.dumps([options, records])
        if key not in self.done:
            result, output = self.invoke(options, *records)
            assert result.exit_code == 0, result.output
            self.done[key] = Made(tokmill.open(output), self.library)
        return self.done[key]

    def invoke(self, options: list[str], *records: Any) -> tuple[Any, Path]:
        number = len(list(self.directory.iterdir()))
        source, output = (self.directory / f"{number}{end}" for end in (".jsonl", ""))
        source.write_text("".join(json.dumps(record) + "\n" for record in records))
        common = ["--engine", "reference", "--workers", "1", "--threads", "1"]
        arguments = ["sft", source, "-t", self.tokenizer, "-o", output, *common, *options]
        return CliRunner().invoke(cli, list(map(str, arguments))), output


@pytest.fixture(scope="module")
def run(library: tuple[Path, Library], tmp_path_factory: pytest.TempPathFactory) -> Runs:
    return Runs(*library, tmp_path_factory.mktemp("runs"))


# Chats


def message(role: str, content: Any, **fields: Any) -> dict[str, Any]:
    return {"role": role, "content": content, **fields}


def user(content: str) -> dict[str, Any]:
    return message("user", content)


def bot(content: Any, **fields: Any) -> dict[str, Any]:
    return message("assistant", content, **fields)


def chat(*messages: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return {"messages": list(messages), **fields}


def part(text: str, **flags: Any) -> dict[str, Any]:
    return {"type": "text", "text": text, **flags}


def said(role: str, text: str) -> str:
    return f"<|im_start|>{role}\n{text}<|im_end|>\n"


ASKS = "<|im_start|>assistant\n"
END = "<|im_end|>"
CALL = {"type": "function", "function": {"name": "f", "arguments": {}}}
CALLED = '<tool_call>\n{"name": "f", "arguments": {}}\n</tool_call>'
EMPTY = "<think>\n\n</think>\n\n"
THOUGHT = "<think>\nR\n</think>\n\n"

TWO = chat(message("system", "S"), user("U"), bot("A"), user("V"), bot("B"))
ONE = chat(user("U"), bot("A"))
SYSTEM = said("system", "S")
REASONED = chat(user("U"), bot(f"{THOUGHT}A"), user("V"), bot(f"{THOUGHT}B"))
HALF_REASONED = chat(user("U"), bot(f"{THOUGHT}A"), user("V"), bot("B"))
LONG = chat(user("U"), bot("A long reply, of many tokens."), user("V"), bot("B"))


def two(first: str, second: str, before: str = SYSTEM) -> str:
    """Return chat TWO as chatml writes it, with these replies."""
    return f"{before}{said('user', 'U')}{ASKS}{first}\n{said('user', 'V')}{ASKS}{second}\n"


def one(reply: str, before: str = "") -> str:
    return f"{before}{said('user', 'U')}{ASKS}{reply}\n"


def with_newline(text: str) -> str:
    """Return the text with the newline behind trained ends trained too."""
    return text.replace(f"{END}»\n", f"{END}\n»")


REPLIES = two(f"«A{END}»", f"«B{END}»")
LAST = two(f"A{END}", f"«B{END}»")
ALL = "<|im_start|>«" + two(f"A{END}", f"B{END}").removeprefix("<|im_start|>") + "»"
TORCHTUNE = f"{SYSTEM}{said('user', 'U')}«{ASKS}A{END}\n»{said('user', 'V')}«{ASKS}B{END}»"
"""A message is trained with its header; the last one ends with eos, without a newline."""


# What rows promise


@dataclass(frozen=True)
class Samples:
    """The row's options make these samples of the records.

    `jinja`: the content of `x.jinja`.
    """

    records: tuple[Any, ...]
    samples: tuple[str, ...]
    jinja: str = ENDED

    def check(self, run: Runs, options: list[str]) -> None:
        path = run.directory / ("ended.jinja" if self.jinja == ENDED else "endless.jinja")
        path.write_text(self.jinja)
        texts = {"x.jinja": str(path), "TEXT": "D"}
        made = run([texts.get(word, word) for word in options], *self.records)
        assert made.shown() == list(self.samples)


@dataclass(frozen=True)
class Holds:
    """A check of another kind; `n` takes the place of `N` in the row's options."""

    holds: Callable[[Runs, list[str]], None]
    n: int = 0

    def check(self, run: Runs, options: list[str]) -> None:
        self.holds(run, [str(self.n) if word == "N" else word for word in options])


def makes(record: Any, *samples: str, jinja: str = ENDED) -> Samples:
    return Samples((record,), samples, jinja)


LIMITS = {"--max-tokens", "--too-long", "--packing", "--min-tokens"}


def uncut(run: Runs, options: list[str], *records: Any) -> Made:
    """Return the samples that the options make without their limits of length."""
    pairs = zip(options[::2], options[1::2], strict=True)
    return run([word for pair in pairs if pair[0] not in LIMITS for word in pair], *records)


def cut(kept: slice, n: int) -> Holds:
    """The trainer takes the same slice of ids and labels."""

    def holds(run: Runs, options: list[str]) -> None:
        ((ids, weights),) = uncut(run, options, LONG).samples
        labels = weights[kept]
        labels[0] = 0  # no token of the sample predicts it
        assert run(options, LONG).samples == [(ids[kept], labels)]
        assert len(labels) == n < len(ids)

    return Holds(holds, n)


def cut_right(n: int) -> Holds:
    return cut(slice(None, n), n)


def cut_left(n: int) -> Holds:
    return cut(slice(-n, None), n)


def pieces(n: int, record: Any) -> Holds:
    """A long sample is cut into pieces; each trained token is trained in one of them."""

    def holds(run: Runs, options: list[str]) -> None:
        made = run(options, record)
        assert len(made.samples) > 1
        assert max(len(ids) for ids, _ in made.samples) <= n
        assert made.trained() == uncut(run, options, record).trained()

    return Holds(holds, n)


def left_out(n: int) -> Holds:
    """A longer sample is left out, and counted with its tokens."""

    def holds(run: Runs, options: list[str]) -> None:
        options = options or ["--max-tokens", str(n)]
        made = run(options, LONG, ONE)
        assert made.samples == uncut(run, options, ONE).samples
        ((ids, _),) = uncut(run, options, LONG).samples
        totals = made.dataset.manifest["totals"]
        assert totals["drops"] == {"more than max_tokens": 1}
        assert totals["lost_tokens"] == {"more than max_tokens": len(ids)}

    return Holds(holds, n)


def short_left_out(run: Runs, options: list[str]) -> None:
    made = run(options, LONG, ONE)
    assert made.samples == uncut(run, options, LONG).samples


def packed(run: Runs, options: list[str]) -> None:
    """Rows are those of best-fit decreasing over the lengths, cut where the options cut."""
    options = options or ["--packing", "40"]
    records = [ONE, LONG, ONE, ONE, ONE]
    made = run(options, *records)
    cuts = "truncate-right" in options
    capacity = int(options[options.index("--packing") + 1])
    lengths = [len(ids) for ids, _ in uncut(run, options, *records).samples]
    kept = [min(length, capacity) for length in lengths if cuts or length <= capacity]
    bins: list[list[int]] = []
    for length in sorted(kept, reverse=True):
        fitting = [row for row in bins if sum(row) + length <= capacity]
        row = max(fitting, key=sum, default=[])
        bins += [] if fitting else [row]
        row.append(length)
    packs = made.dataset.packs["train"]
    rows = [[len(made.dataset[number]) for number in packs.row(row)] for row in range(packs.n_rows)]
    assert sorted(map(sorted, rows)) == sorted(map(sorted, bins))


def kept_apart(run: Runs, options: list[str]) -> None:
    """Samples of a row have positions of their own; padding is left out, or is no target."""
    made = run(options or ["--packing", "40"], ONE, ONE, ONE)
    ((ids, weights), *_) = made.samples
    labels = [id_ if weight else -100 for id_, weight in zip(ids, weights, strict=True)]
    positions = list(range(len(ids)))
    rows = rows_of(tokmill.loader.packs(made.dataset, shift=False, pad=False))
    assert [row["position_ids"].tolist() for row in rows] == [positions * 2, positions]
    assert [row["labels"].tolist() for row in rows] == [labels * 2, labels]
    padded = rows_of(tokmill.loader.packs(made.dataset, shift=False))
    assert {len(row["labels"]) for row in padded} == {40}
    assert all((row["labels"][len(ids) * 2 :] == -100).all() for row in padded)


def rows_of(source: Any) -> list[dict[str, Any]]:
    return [source[number] for number in range(len(source))]


def wrapped(run: Runs, options: list[str]) -> None:
    """Rows of N tokens of all samples end to end, with their labels."""
    assert options == []
    made = run([], TWO, ONE, LONG)
    ids, weights = (np.concatenate(lists) for lists in zip(*made.samples, strict=True))
    rows = rows_of(tokmill.loader.windows(made.dataset, 16, shift=False))
    assert len(rows) == len(ids) // 16 > 3
    for number, row in enumerate(rows):
        span = slice(16 * number, 16 * number + 16)
        labels = np.where(weights[span] > 0, ids[span], -100)
        assert row["input_ids"].tolist() == ids[span].tolist()
        assert row["labels"][1:].tolist() == labels[1:].tolist()  # nothing predicts the first


def refused(tokenized: Any, *words: str) -> Holds:
    """A run of such records is an error that has these words."""

    def holds(run: Runs, options: list[str]) -> None:
        result, _ = run.invoke(options, tokenized)
        assert result.exit_code != 0
        assert all(word in str(result.exception) for word in words)

    return Holds(holds)


def exported(trainer: str) -> Holds:
    """A dataset can be exported to the trainer, and the page has the lines that are printed."""

    def holds(run: Runs, options: list[str]) -> None:
        made = run(options, TWO).dataset.export(trainer, run.directory / trainer)
        assert str(run.directory / trainer) in made.usage

    return Holds(holds)


def asks_for_a_template(run: Runs, options: list[str]) -> None:
    """Without a template of the tokenizer's, the error names what the row names."""
    bare = run.directory / "bare"
    bare.mkdir(exist_ok=True)
    (bare / "tokenizer.json").write_bytes((run.tokenizer / "tokenizer.json").read_bytes())
    (bare / "tokenizer_config.json").write_text(json.dumps({"eos_token": "<eos>"}))
    result, _ = replace(run, tokenizer=bare).invoke([], TWO)
    assert result.exit_code != 0
    assert "give --template, one of chatml" in str(result.exception)
    assert replace(run, tokenizer=bare, done={})(options, TWO).shown() == [REPLIES]


def read_from_records(run: Runs, options: list[str]) -> None:
    record = chat(user("U"), bot("A"), chat_template_kwargs={"enable_thinking": False})
    made = run(["--template", "qwen3-training"], {**record, "tools": [CALL["function"]]}, record)
    with_tools, text = made.shown()
    assert re.search(r'<tools>\n.*"name": "f".*\n</tools>', with_tools)
    assert text == one(f"{EMPTY}«A{END}»")


def other_names(run: Runs, options: list[str]) -> None:
    record = chat(user("U"), bot("A", thoughts="R"), persona="S", apis=[CALL["function"]])
    (text,) = run(options, record).shown()
    assert text.startswith("<|im_start|>system\nS\n\n# Tools")
    assert '{"name": "f", "arguments": {}}' in text
    assert text.endswith(one(f"«{THOUGHT}A{END}»"))


def thinking_key(run: Runs, options: list[str]) -> None:
    """A template finds the reasoning of a record under each of the two usual names."""
    assert options == []
    path = run.directory / "thinking.jinja"
    names = "(m.thinking or '') + (m.reasoning_content or '') + m.content"
    path.write_text(ENDED.replace("m.content", names))
    made = run(["--template", str(path)], chat(user("U"), bot("A", reasoning="R")))
    assert made.shown() == [f"[user]U{END}[assistant]«RRA{END}»"]


def all_but_the_first_token(text: str, record: Any) -> Holds:
    def holds(run: Runs, options: list[str]) -> None:
        ((ids, weights),) = run(options, record).samples
        assert weights == [0] + [1] * (len(ids) - 1)
        assert run.library.decode(ids, skip_special_tokens=False) == text

    return Holds(holds)


def weights_dropped(run: Runs, options: list[str]) -> None:
    assert options == []
    made = run(["--weights", "file"], chat(user("U"), bot("A", weight=0.5)))
    assert made.shown() == [one(f"0.5«A{END}»")]
    output = run.directory / "exported"
    with pytest.raises(tokmill.TokmillError, match="drop-weights"):
        made.dataset.export("datatrove", output)
    made.dataset.export("datatrove", output, drop_weights=True)
    again = tokmill.import_dataset(
        output, trainer="datatrove", output=output.with_suffix(".back"), tokenizer=run.tokenizer
    )
    assert Made(again, run.library).shown() == [one(f"«A{END}»")]


def whole_turns(run: Runs, options: list[str]) -> None:
    """The turns that fit are kept whole, with the end of the last one."""
    assert run(options, TWO).shown() == [f"{SYSTEM}{said('user', 'U')}{ASKS}«A{END}»\n"]


# The rows

OF_PROMPT = {"prompt": TWO["messages"][:-1], "completion": TWO["messages"][-1:]}
OF_TEXTS = {"prompt": "U", "completion": "A"}
TOKENIZED = {"input_ids": [3, 4, 5], "labels": [-100, 4, 5]}
ALPACA = (
    "Below is an instruction that describes a task, paired with an input that provides further "
    "context. Write a response that appropriately completes the request.\n\n"
    "### Instruction:\nI\n\n### Input:\nX\n\n### Response:\nO<eos>"
)
OTHER_KEYS = {"talk": [{"who": "human", "said": "U"}, {"who": "gpt", "said": "A"}]}
OTHER_ROLES = {"talk": [{"who": "human", "said": "U"}, {"who": "bot", "said": "A"}]}
BY_TOOL = chat(user("U"), bot("", tool_calls=[CALL]), message("tool", "r"), bot("A"))
TOOL_OUTPUT = "<tool_response>\nr\n</tool_response>"
OF_X_JINJA = makes(
    TWO, f"[system]S{END}[user]U{END}[assistant]«A{END}»[user]V{END}[assistant]«B{END}»"
)
DEFAULT_SYSTEM = makes(ONE, one(f"«A{END}»", said("system", "D")))


def of_tool(first: str, last: str) -> str:
    """Return chat BY_TOOL as chatml writes it, with this call and this reply."""
    return one(first) + said("user", TOOL_OUTPUT) + f"{ASKS}{last}\n"


def on_old(first: str, last: str) -> str:
    """Return a chat of two turns without a system message, with these replies."""
    return two(first, last, before="")


def weighed(text: str, reply: str) -> Samples:
    return makes(chat(user("U"), bot(text)), with_newline(one(reply)))


CALLS = makes(
    chat(message("system", "S"), user("U"), bot("", tool_calls=[CALL])),
    one(f"«{CALLED}{END}»", SYSTEM),
)
"""Calls as Qwen2.5's template writes them."""

PROMISES: dict[str, dict[str, Samples | Holds]] = {
    "TRL": {
        "assistant_only_loss=True": makes(TWO, with_newline(REPLIES)),
        "assistant_only_loss=False (default)": makes(TWO, ALL),
        "completion_only_loss=True (default with prompt)": makes(OF_PROMPT, with_newline(LAST)),
        "completion_only_loss=False": makes(OF_PROMPT, ALL),
        "prompt and completion that are texts": makes(OF_TEXTS, "U«A<eos>»"),
        'dataset_text_field="body"': makes({"body": "U V"}, "U« V<eos>»"),
        f'eos_token="{END}"': makes(OF_TEXTS, f"U«A{END}»"),
        'chat_template_path="x.jinja"': OF_X_JINJA,
        "tools, chat_template_kwargs of a record": Holds(read_from_records),
        'max_length=N ("keep_start")': cut_right(30),
        'truncation_mode="keep_end"': cut_left(30),
        'packing=True ("bfd")': Holds(packed, 40),
        'packing_strategy="bfd_split"': pieces(20, LONG),
        'packing_strategy="wrapped"': Holds(wrapped),
        "padding_free=True": Holds(kept_apart),
        "formatting_func": OF_X_JINJA,
        "rows with input_ids and labels": refused(TOKENIZED, "rows of ids", "input_ids"),
    },
    "axolotl": {
        "roles_to_train: [assistant] (default)": makes(TWO, REPLIES),
        "roles_to_train: [user, assistant]": makes(
            chat(message("system", "S"), user("U"), bot("A")),
            f"{SYSTEM}<|im_start|>user\n«U{END}»\n{ASKS}«A{END}»\n",
        ),
        "roles_to_train: and train_on_eos:, empty": makes(TWO, with_newline(LAST)),
        "train_on_inputs: true": makes(
            chat(message("system", "S"), user("U"), bot("A")),
            f"<|im_start|>system\n«S{END}»\n<|im_start|>user\n«U{END}»\n{ASKS}«A{END}»\n",
        ),
        "train_on_inputs: true, type: alpaca": all_but_the_first_token(
            ALPACA, {"instruction": "I", "input": "X", "output": "O"}
        ),
        "train_on_eos: turn, train_on_eot: turn (default)": makes(TWO, REPLIES),
        "train_on_eos: none": makes(TWO, two(f"«A»{END}", f"«B»{END}")),
        "train_on_eos: last": makes(TWO, LAST),
        "train_on_eos: all": makes(TWO, REPLIES),
        f'eot_tokens: ["{END}"]': makes(ONE, one(f"«A{END}»")),
        "message_field_training: train": makes(
            chat(message("user", "U", train=True), bot("A", train=False), user("V"), bot("B")),
            f"<|im_start|>user\n«U{END}»\n{ASKS}A{END}\n{said('user', 'V')}{ASKS}«B{END}»\n",
        ),
        "message_field_training_detail: train_detail": makes(
            chat(
                user("U"),
                bot(
                    "bad good",
                    train_detail=[
                        {"begin_offset": 0, "end_offset": 2, "train": False},
                        {"begin_offset": 3, "end_offset": 7, "train": True},
                    ],
                ),
            ),
            one(f"bad« good{END}»"),
        ),
        "train, weight of parts of content": makes(
            chat(user("U"), bot([part("bad", train=False), part(" good"), part(" end", weight=0)])),
            one(f"bad« good» end«{END}»"),
        ),
        "field_messages, message_property_mappings": makes(OTHER_KEYS, one(f"«A{END}»")),
        "field_thinking, field_tools, field_system": Holds(other_names),
        "template_thinking_key: thinking": Holds(thinking_key),
        "roles: {assistant: [bot]}": makes(chat(user("U"), message("bot", "A")), one(f"«A{END}»")),
        "drop_system_message: true": makes(TWO, on_old(f"«A{END}»", f"«B{END}»")),
        "default_system_message: TEXT": DEFAULT_SYSTEM,
        "chat_template: tokenizer_default (default)": makes(TWO, REPLIES),
        "chat_template: chatml": makes(TWO, REPLIES),
        "chat_template: tokenizer_default_fallback_chatml": Holds(asks_for_a_template),
        "chat_template_jinja: x.jinja": OF_X_JINJA,
        "chat_template_kwargs": makes(ONE, one(f"{EMPTY}«A{END}»")),
        "split_thinking: true": Samples(
            (
                chat(user("U"), bot("<think>R</think>A")),
                chat(
                    user("U"),
                    bot(
                        "<|begin_of_thought|>R<|end_of_thought|>"
                        "<|begin_of_solution|>A<|end_of_solution|>"
                    ),
                ),
                chat(user("U"), bot("<reasoning>R</reasoning>A")),
            ),
            (
                one(f"«{THOUGHT}A{END}»"),
                one(f"«{THOUGHT}A{END}»"),
                one(f"«<reasoning>R</reasoning>A{END}»"),
            ),
        ),
        "type: input_output": makes(
            chat(bot([part("a", train=False), part("b"), part("c", train=False), part("d")])),
            "a«b»c«d<eos>»",
        ),
        "type: completion": pieces(10, {"text": LONG["messages"][1]["content"]}),
        "sequence_len: N (drop)": left_out(20),
        "excess_length_strategy: truncate": cut_right(30),
        "excess_length_strategy: raise": left_out(20),
        "min_sample_len: N": Holds(short_left_out, 20),
        "sample_packing: true": Holds(packed, 40),
        "sample_packing_sequentially: true": Holds(packed),
        "rows with input_ids and labels": refused(TOKENIZED, "rows of ids", "input_ids"),
    },
    "LLaMA-Factory": {
        "train_on_prompt: false (default)": makes(TWO, with_newline(REPLIES)),
        "train_on_prompt: true": makes(TWO, ALL),
        "mask_history: true": makes(
            REASONED, with_newline(on_old(f"A{END}", f"«{THOUGHT}B{END}»"))
        ),
        "mask_history: true, preserve_thinking: true": makes(
            REASONED, with_newline(on_old(f"{THOUGHT}A{END}", f"«{THOUGHT}B{END}»"))
        ),
        "enable_thinking: true (default)": makes(
            HALF_REASONED, with_newline(on_old(f"«{THOUGHT}A{END}»", f"«{EMPTY}B{END}»"))
        ),
        "enable_thinking: null": makes(
            HALF_REASONED, with_newline(on_old(f"«{THOUGHT}A{END}»", f"{EMPTY}«B{END}»"))
        ),
        "enable_thinking: false": makes(
            chat(user("U"), bot("A", reasoning_content="R"), user("V"), bot("B")),
            with_newline(on_old(f"{EMPTY}«A{END}»", f"{EMPTY}«B{END}»")),
        ),
        "no template, and the tokenizer has none": Holds(asks_for_a_template),
        "default_system: TEXT": makes(ONE, with_newline(one(f"«A{END}»", said("system", "D")))),
        "tool_format": CALLS,
        "cutoff_len: N": Holds(whole_turns, 37),
        "neat_packing: true": Holds(packed, 40),
        "packing: true": Holds(kept_apart, 40),
        "efficient_eos of a template": makes(
            TWO, "[system]S[user]U[assistant]«A<eos>»[user]V[assistant]«B<eos>»", jinja=ENDLESS
        ),
        "replace_eos of a template": makes(OF_TEXTS, f"U«A{END}»"),
        "columns: {prompt, query, response, system, history}": makes(
            {"ask": "I", "more": "X", "told": "B", "persona": "S", "past": [["U", "A"]]},
            two(f"«A{END}»", f"«B{END}»").replace(said("user", "V"), said("user", "I\nX")),
        ),
        "tags: {role_tag, content_tag, assistant_tag, …}": makes(OTHER_ROLES, one(f"«A{END}»")),
        "ignore_pad_token_for_loss: true (default)": Holds(kept_apart),
        "tokenized_path": exported("llamafactory"),
    },
    "ms-swift": {
        "loss_scale default (default)": makes(TWO, with_newline(REPLIES)),
        "loss_scale last_round": Samples(
            (TWO, BY_TOOL),
            (with_newline(LAST), with_newline(of_tool(f"{CALLED}{END}", f"«A{END}»"))),
        ),
        "loss_scale all": makes(TWO, ALL),
        "loss_scale ignore_empty_think (default of hybrid models)": weighed(
            f"{EMPTY}A", f"{EMPTY}«A{END}»"
        ),
        "disable_ignore_empty_think true": weighed(f"{EMPTY}A", f"«{EMPTY}A{END}»"),
        "loss_scale ignore_think_prefix": weighed(
            f"{THOUGHT}A", f"<think>\n«{THOUGHT.removeprefix('<think>' + chr(10))}A{END}»"
        ),
        "loss_scale hermes": makes(
            BY_TOOL, with_newline(of_tool(f"2«{CALLED}»«{END}»", f"«A{END}»"))
        ),
        "loss_scale hermes+ignore_empty_think": weighed(
            f"{EMPTY}A\n{CALLED}", f"{EMPTY}«A\n»2«{CALLED}»«{END}»"
        ),
        "loss_scale react": weighed(
            "Thought: t\nAction: f\nAction Input: x\nObservation: o\nAction: g\nFinal Answer: a",
            "«Thought: t\n»2«Action: f\nAction Input: x\nObservation:» o\n2«Action: g\n»"
            f"«Final Answer: a{END}»",
        ),
        "loss_scale alpha_umi": weighed(
            "Thought: t\nNext: n\nObservation: o\nNext: m\nThought: u",
            f"«Thought: t\n»2«Next: n\nObservation:» o\n2«Next: m\n»«Thought: u{END}»",
        ),
        "loss_scale qwen": weighed(
            "✿FUNCTION✿: f\n✿ARGS✿: x\n✿RESULT✿: r\n✿RETURN✿: a",
            f"2«✿FUNCTION✿: f\n✿ARGS✿: x\n✿RESULT✿:» r\n«✿RETURN✿: a{END}»",
        ),
        "loss_scale agentflan": makes(chat(user("U"), bot("A", weight=3)), one(f"3«A{END}»")),
        "loss of a message": makes(
            chat(user("U"), bot("A", loss=False), user("V"), bot("B", loss=True)),
            on_old(f"A{END}", f"«B{END}»"),
        ),
        "loss_scale of a message": makes(
            chat(user("U"), bot("A", loss_scale=2)), with_newline(one(f"2«A{END}»"))
        ),
        "is_binary_loss_scale true": Holds(weights_dropped),
        "system TEXT": DEFAULT_SYSTEM,
        "preserve_thinking false, loss_scale last_round": makes(
            REASONED, with_newline(on_old(f"A{END}", f"«{THOUGHT}B{END}»"))
        ),
        "preserve_thinking false, loss_scale default": makes(
            REASONED, one(f"«{THOUGHT}A{END}»"), on_old(f"A{END}", f"«{THOUGHT}B{END}»")
        ),
        "add_non_thinking_prefix true (default)": makes(
            HALF_REASONED, with_newline(on_old(f"«{THOUGHT}A{END}»", f"{EMPTY}«B{END}»"))
        ),
        "add_non_thinking_prefix false": makes(
            HALF_REASONED, with_newline(on_old(f"«{THOUGHT}A{END}»", f"«B{END}»"))
        ),
        "response_prefix TEXT, enable_thinking true": makes(TWO, REPLIES),
        "use_chat_template false": makes(ONE, "U«A<eos>»"),
        "agent_template": CALLS,
        "roles tool_call and tool_response": makes(
            chat(
                user("U"),
                message("tool_call", '{"name": "f", "arguments": {}}'),
                message("tool_call", '{"name": "f", "arguments": {}}'),
                message("tool_response", "r"),
                bot("A"),
            ),
            of_tool(f"«{CALLED}\n{CALLED}{END}»", f"«A{END}»"),
        ),
        "assistant texts in a row, which are joined": makes(
            chat(user("U"), bot("A"), bot("B")), one(f"«A{END}»\n{ASKS}«B{END}»")
        ),
        """columns '{"ask": "query", "told": "response"}'""": makes(
            {"ask": "U", "told": "A"}, one(f"«A{END}»")
        ),
        "max_length N (delete)": left_out(20),
        "truncation_strategy left": cut_left(30),
        "truncation_strategy right": cut_right(30),
        "truncation_strategy split": pieces(20, LONG),
        "packing true, packing_length N": Holds(packed, 40),
        "packing_strategy sequential": Holds(packed),
        "padding_free true": Holds(kept_apart),
        "cached_dataset": exported("ms-swift"),
    },
    "torchtune": {
        "train_on_input: false, masking_strategy: train_on_assistant": makes(TWO, TORCHTUNE),
        "train_on_input: true, masking_strategy: train_on_all": makes(
            TWO, f"{SYSTEM}«{TORCHTUNE.removeprefix(SYSTEM).replace('«', '').replace('»', '')}»"
        ),
        "masking_strategy: train_on_last": makes(
            TWO, f"{SYSTEM}{said('user', 'U')}{ASKS}A{END}\n{said('user', 'V')}«{ASKS}B{END}»"
        ),
        "masked of a message": makes(
            chat(user("U"), bot("A", masked=True), user("V"), bot("B")),
            f"{said('user', 'U')}{ASKS}A{END}\n{said('user', 'V')}«{ASKS}B{END}»",
        ),
        "new_system_prompt: TEXT": makes(TWO, TORCHTUNE.replace(SYSTEM, said("system", "D"))),
        "column_map: {input: ask, output: told}": makes(
            {"ask": "U", "told": "A"}, f"{said('user', 'U')}«{ASKS}A{END}»"
        ),
        "conversation_column: talk, conversation_style: sharegpt": makes(
            {"talk": [{"from": "human", "value": "U"}, {"from": "gpt", "value": "A"}]},
            f"{said('user', 'U')}«{ASKS}A{END}»",
        ),
        "prompt_template": OF_X_JINJA,
        "max_seq_len: N": cut_right(30),
        "truncation_type: left": cut_left(30),
        "packed: true": Holds(packed, 40),
        "split_across_pack: true": Holds(wrapped),
    },
}


def test_every_row_has_a_promise_and_every_promise_a_row() -> None:
    promised = [(trainer, option) for trainer, rows in PROMISES.items() for option in rows]
    assert promised == list(ROWS)


@pytest.mark.parametrize(
    "row", [pytest.param(row, id=f"{row.trainer}: {row.option}") for row in ROWS.values()]
)
def test_what_a_row_says_is_so(row: Row, run: Runs) -> None:
    PROMISES[row.trainer][row.option].check(run, row.options)


def test_a_row_without_an_option_says_why() -> None:
    words = ("nothing to set", "no: ", "no option: ")
    unclear = [key for key, row in ROWS.items() if not row.options]
    assert [key for key in unclear if not ROWS[key].cell.startswith(words)] == []
