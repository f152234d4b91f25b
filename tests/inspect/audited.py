"""Rows with one planted fault of each kind, and a tokenizer that knows what they are made of."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tokenizers.pre_tokenizers import ByteLevel

from tokmill.tokenizer.tokenizer_json import byte_characters

Row = dict[str, Any]

EOS, BOS, START, END, PAD, THINK, UNTHINK, RESERVED = range(8)
_ADDED = (
    "<eos>", "<bos>", "<|im_start|>", "<|im_end|>", "<pad>", "<think>", "</think>",
    "<|reserved_special_token_0|>",
)  # fmt: skip
_ALPHABET = sorted(ByteLevel.alphabet())
GAP, N_IDS = len(_ADDED) + 256, len(_ADDED) + 258
"""An id that no token has, and the size of the vocabulary."""


def write_tokenizer(folder: Path) -> Path:
    """Write a tokenizer of control tokens, 256 bytes, a gap, and a merge."""
    vocab = {token: id_ for id_, token in enumerate((*_ADDED, *_ALPHABET))}
    vocab["ab"] = GAP + 1
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    added = [
        {"id": id_, "content": token, "special": True, **flags} for id_, token in enumerate(_ADDED)
    ]
    byte_level = {"add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    content = {
        "added_tokens": added,
        "pre_tokenizer": {"type": "ByteLevel", **byte_level},
        "decoder": {"type": "ByteLevel", **byte_level},
        "model": {"type": "BPE", "vocab": vocab, "merges": [["a", "b"]]},
    }
    (folder / "tokenizer.json").write_text(json.dumps(content))
    named = {"eos_token": "<eos>", "bos_token": "<bos>", "pad_token": "<pad>"}
    (folder / "tokenizer_config.json").write_text(json.dumps(named))
    return folder


def of_text(text: str) -> list[int]:
    """Return the ids of the bytes of a text."""
    characters = byte_characters()
    return [len(_ADDED) + _ALPHABET.index(characters[byte]) for byte in text.encode()]


def words(number: int) -> list[int]:
    """Return four ids that no other number below 10,000 has."""
    return of_text(f"{number:04}")


def chat(number: int) -> Row:
    """Return a chat whose reply and its end are trained."""
    prompt = [BOS, START, *words(number), END, START]
    reply = [*words(number), END]
    return {"input_ids": prompt + reply, "labels": [-100] * len(prompt) + reply}


def with_reply(number: int, reply: Sequence[int], labels: Sequence[int] | None = None) -> Row:
    """Return a chat with another reply; `labels`: of it, by default all of it is trained."""
    prompt = [BOS, START, *words(number), END, START]
    own = list(reply if labels is None else labels)
    return {"input_ids": prompt + list(reply), "labels": [-100] * len(prompt) + own}


def changed(number: int, **columns: Any) -> Row:
    """Return a chat with other columns; a function is called with the old values."""
    row = chat(number)
    for name, value in columns.items():
        row[name] = value(row[name]) if callable(value) else value
    return row


def masked(number: int) -> Row:
    """Return a chat with a mask of the loss in place of labels."""
    row = chat(number)
    return {
        "input_ids": row["input_ids"],
        "loss_mask": [int(label != -100) for label in row["labels"]],
    }


def document(number: int) -> Row:
    """Return a document."""
    return {"input_ids": [*words(number), EOS]}


def packed(number: int) -> Row:
    """Return a row of two chats, with their lengths and positions."""
    first, second = chat(number), chat(number + 5000)
    lengths = [len(first["input_ids"]), len(second["input_ids"])]
    return {
        **{name: first[name] + second[name] for name in first},
        "seq_lengths": lengths,
        "position_ids": [*range(lengths[0]), *range(lengths[1])],
    }


def attended(number: int) -> Row:
    """Return a chat with two tokens of padding that do not count."""
    row = chat(number)
    return {
        "input_ids": [*row["input_ids"], PAD, PAD],
        "labels": [*row["labels"], -100, -100],
        "attention_mask": [1] * len(row["input_ids"]) + [0, 0],
    }


@dataclass(frozen=True)
class Fault:
    """A fault: sound rows, and one with it, each by a number that makes them differ.

    `kind`: what it is. `is_row`: only rows have it. `options`: of `tokmill.audit`. `n_sound`: rows
    before the two faulty ones. `formats`: that can hold it; () for all.
    """

    kind: str
    bad: Callable[[int], Row]
    good: Callable[[int], Row] = chat
    is_row: bool = False
    options: dict[str, Any] = field(default_factory=dict)
    n_sound: int = 3
    formats: tuple[str, ...] = ()

    def rows(self) -> list[Row]:
        """Return the sound rows, and two with the fault."""
        return [*map(self.good, range(self.n_sound)), self.bad(101), self.bad(102)]


_E_ACUTE = of_text("é")
_N = len(chat(0)["input_ids"])


def _of_row(kind: str, bad: Callable[[int], Row], **more: Any) -> Fault:
    return Fault(kind, bad, is_row=True, **more)


FAULTS: dict[str, Fault] = {
    "no label": Fault("nothing-trained", lambda n: changed(n, labels=[-100] * _N)),
    "labels are the ids": Fault(
        "all-trained", lambda n: changed(n, labels=chat(n)["input_ids"])
    ),
    "a label at the first token": Fault(
        "first-trained", lambda n: changed(n, labels=lambda old: [BOS, *old[1:]])
    ),
    "no label at the first token of a reply": Fault(
        "begin-untrained", lambda n: with_reply(n, [*words(n), END], [-100, *words(n)[1:], END])
    ),
    "no label at the end of turn": Fault(
        "end-untrained", lambda n: changed(n, labels=lambda old: [*old[:-1], -100])
    ),
    "eos as the end, untrained": Fault(
        "end-untrained", lambda n: with_reply(n, [*words(n), EOS], [*words(n), -100])
    ),
    "an end cut off": Fault("cut-off", lambda n: with_reply(n, words(n))),
    "a short reply cut off": Fault("cut-off", lambda n: with_reply(n, words(n)[:1])),
    "a reply cut off behind its reasoning": Fault(
        "cut-off", lambda n: with_reply(n, [THINK, *words(n), UNTHINK])
    ),
    "a reply that goes on": Fault(
        "trained-past-end", lambda n: with_reply(n, [*words(n), END, *words(n), END])
    ),
    "an empty block of thinking": Fault(
        "empty-thinking",
        lambda n: with_reply(n, [THINK, *of_text("\n\n"), UNTHINK, *words(n), END]),
    ),
    "half of a character at the begin": Fault(
        "split-character",
        lambda n: with_reply(n, [*_E_ACUTE, *words(n), END], [-100, _E_ACUTE[1], *words(n), END]),
    ),
    "half of a character at the end": Fault(
        "split-character",
        lambda n: with_reply(
            n, [*words(n), *_E_ACUTE, END], [*words(n), _E_ACUTE[0], -100, END]
        ),
    ),
    "a document without eos": Fault(
        "no-eos", lambda n: {"input_ids": words(n)}, good=document
    ),
    "eos in a document": Fault(
        "eos-inside", lambda n: {"input_ids": [*words(n), EOS, *words(n), EOS]}, good=document
    ),
    "two bos": Fault(
        "two-bos",
        lambda n: {name: [one[0], *one] for name, one in chat(n).items()},
    ),
    "an id above the vocabulary": Fault(
        "id-above-vocabulary", lambda n: with_reply(n, [*words(n), N_IDS, END])
    ),
    "an id of no token": Fault("unused-id", lambda n: with_reply(n, [*words(n), GAP, END])),
    "a reserved token": Fault("unused-id", lambda n: with_reply(n, [*words(n), RESERVED, END])),
    "an equal chat": Fault("duplicate", lambda n: chat(n - 100)),
    "a long chat": Fault(
        "over-limit", lambda n: with_reply(n, [*words(n) * 3, END]), options={"max_tokens": 15}
    ),
    "padding with labels": Fault(
        "padding-trained", lambda n: with_reply(n, [*words(n), END, PAD, PAD])
    ),
    "padding that counts": Fault(
        "padding-attended",
        lambda n: with_reply(n, [*words(n), END, PAD, PAD], [*words(n), END, -100, -100]),
    ),
    "padding before a chat": Fault(
        "padding-attended",
        lambda n: {"input_ids": [PAD, *chat(n)["input_ids"]], "labels": [-100, *chat(n)["labels"]]},
    ),
    "padding in documents": Fault(
        "padding-trained", lambda n: {"input_ids": [*words(n), EOS, EOS, EOS]}, good=document,
        options={"tokenizer": "without pad"},
    ),
    "an id below 0": _of_row("negative-id", lambda n: with_reply(n, [*words(n), -7, END])),
    "labels of the next tokens": _of_row(
        "labels-shifted", lambda n: changed(n, labels=lambda old: [*old[1:], -100])
    ),
    "labels of the tokens before": _of_row(
        "labels-differ", lambda n: changed(n, labels=lambda old: [-100, *old[:-1]])
    ),
    "one wrong label": _of_row(
        "labels-differ", lambda n: changed(n, labels=lambda old: [*old[:-1], START])
    ),
    "padding without attention, with labels": _of_row(
        "padding-trained",
        lambda n: {**attended(n), "labels": [*chat(n)["labels"], PAD, PAD]},
        good=attended,
    ),
    "padding with attention": _of_row(
        "padding-attended",
        lambda n: {**attended(n), "attention_mask": [1] * (_N + 2)},
        good=attended,
    ),
    "attention with a hole": _of_row(
        "padding-inside",
        lambda n: {**attended(n), "attention_mask": [1, 0] + [1] * (_N - 2) + [0, 0]},
        good=attended,
    ),
    "positions that run on": _of_row(
        "positions-run-on",
        lambda n: {**packed(n), "position_ids": [*range(2 * _N)]},
        good=packed,
    ),
    "positions that run on, by numbers of samples": _of_row(
        "positions-run-on",
        lambda n: {**_numbered(n), "position_ids": [*range(2 * _N)]},
        good=lambda n: _numbered(n),
    ),
    "positions that run on in joined documents": _of_row(
        "positions-run-on",
        lambda n: {
            "input_ids": [*words(n), EOS, *words(n), EOS], "position_ids": [*range(10)],
        },
        good=lambda n: {**document(n), "position_ids": [*range(5)]},
    ),
    "positions that run on in joined chats": _of_row(
        "positions-run-on",
        lambda n: {**_joined(n), "position_ids": [*range(2 * _N)]},
        good=lambda n: {**chat(n), "position_ids": [*range(_N)]},
    ),
    "positions that jump": _of_row(
        "positions-jump",
        lambda n: {**packed(n), "position_ids": [0, 2, *range(3, 2 * _N + 1)]},
        good=packed,
    ),
    "lengths of other samples": _of_row(
        "ends-differ", lambda n: {**packed(n), "seq_lengths": [_N, _N + 1]}, good=packed
    ),
    "a restart where no sample begins": _of_row(
        "ends-differ",
        lambda n: {**packed(n), "position_ids": [*range(4), *range(_N - 4), *range(_N)]},
        good=packed,
    ),
    "too few labels": _of_row(
        "lengths-differ", lambda n: changed(n, labels=lambda old: old[1:])
    ),
    "no labels in a row": _of_row("missing-value", lambda n: changed(n, labels=None)),
    "null among the ids": _of_row(
        "missing-value", lambda n: changed(n, input_ids=lambda old: [None, *old[1:]])
    ),
    "no ids": _of_row("empty", lambda n: {"input_ids": [], "labels": []}),
    "a mask of 2": _of_row(
        "bad-mask", lambda n: {**masked(n), "loss_mask": [0] * (_N - 1) + [2]}, good=masked
    ),
    "a weight below 0": _of_row(
        "bad-mask",
        lambda n: {**chat(n), "weights": [0.0] * (_N - 1) + [-1.0]},
        good=lambda n: {**chat(n), "weights": [1.0] * _N},
    ),
    "a column that first rows lack": _of_row(
        "other-columns", lambda n: {**chat(n), "attention_mask": [1] * _N}, n_sound=40
    ),
    "a target behind the end": _of_row(
        "target-behind-end", lambda n: {**_next(n), "loss_mask": [0] * (_N - 1) + [1]},
        good=lambda n: _next(n), options={"alignment": "next"},
    ),
    "text in place of ids": _of_row(
        "unreadable", lambda n: changed(n, input_ids="some text"), n_sound=40,
        formats=("jsonl",),
    ),
}  # fmt: skip
"""By what is planted; at the end those that only rows of another trainer can have."""


def _joined(number: int) -> Row:
    """Return a row of two chats, of which nothing says where they end."""
    row = packed(number)
    del row["seq_lengths"]
    return row


def _numbered(number: int) -> Row:
    """Return a row of two chats, whose attention mask numbers them."""
    row = packed(number)
    del row["seq_lengths"]
    return {**row, "attention_mask": [1] * _N + [2] * _N}


def _next(number: int) -> Row:
    """Return a chat whose mask stands at the tokens before."""
    row = masked(number)
    return {**row, "loss_mask": [*row["loss_mask"][1:], 0]}
