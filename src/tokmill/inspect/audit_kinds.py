"""The kinds of faults that an audit looks for: the table of docs/audit.md, and of the tests."""

from __future__ import annotations

from typing import NamedTuple

from tokmill.errors import UsageError
from tokmill.extensions import nearest

ALL, CHATS, DOCUMENTS, ROWS = "all", "chats", "documents", "rows"
"""What a kind is looked for in; rows: of another trainer, as a tokmill dataset cannot have it."""

TOKENIZER, BOS = "a tokenizer", "a tokenizer with bos"
BYTES, THINKING = "a tokenizer whose bytes are known", "a tokenizer with tokens for reasoning"
LIMIT, MASK, BOTH = "a limit (max_tokens)", "labels or a mask", "train and val"
"""What a kind needs; without it, it is said that the kind was not looked for."""

ANY = "any"
"""In --fail-on: all kinds."""


class Kind(NamedTuple):
    """A kind of fault.

    Attributes:
        means: what is so in a sample of this kind.
        hurts: what training does then.
        remedy: what to do.
        of: what it is looked for in.
        needs: what must be known.
    """

    means: str
    hurts: str
    remedy: str
    of: str = ALL
    needs: str = ""


KINDS: dict[str, Kind] = {
    "nothing-trained": Kind(
        "no token is trained",
        "costs time and trains nothing; a batch of such samples has a loss of NaN",
        "look at the template's generation tags, and at what cuts replies off",
        CHATS,
    ),
    "all-trained": Kind(
        "every token of a chat is trained, the prompt too",
        "the model learns to write the user's part",
        "make labels of the assistant's turns alone",
        CHATS,
    ),
    "first-trained": Kind(
        "the first token is trained, though not all of them are",
        "nothing predicts it; in a packed row the sample before does",
        "set its label to -100, its mask to 0",
        CHATS,
    ),
    "begin-untrained": Kind(
        "a reply is trained from its second token on, where others are trained from their first",
        "the model does not learn how to begin",
        "encode the prompt and the reply apart, or make the mask of bytes",
        CHATS,
    ),
    "end-untrained": Kind(
        "the token that ends a trained reply is not trained",
        "the model never learns to stop",
        "train the end of turn: it belongs inside the generation tags",
        CHATS, TOKENIZER,
    ),
    "cut-off": Kind(
        "a trained reply stops at the end of the sample, and no token ends it",
        "the model learns to stop in the middle, or not at all",
        "leave out what is too long, rather than cut it; add the end of turn",
        CHATS, TOKENIZER,
    ),
    "trained-past-end": Kind(
        "tokens behind the end of a reply are trained, as if it went on",
        "the model learns to go on after its end",
        "look for an end inside a message's text, or for samples joined in one",
        CHATS, TOKENIZER,
    ),
    "empty-thinking": Kind(
        "an empty block of reasoning is trained",
        "the model learns not to reason",
        "leave the block out, or untrained",
        CHATS, THINKING,
    ),
    "split-character": Kind(
        "what is trained begins or ends inside a character",
        "half of a character is a target, and the other half is not",
        "make the mask of bytes or tokens, not of characters' offsets",
        CHATS, BYTES,
    ),
    "no-eos": Kind(
        "a document does not end with eos",
        "the model never learns to stop, and documents run into each other",
        "add eos to every document",
        DOCUMENTS, TOKENIZER,
    ),
    "eos-inside": Kind(
        "a document has eos before its end",
        "several documents in one, or eos in a text: a reader that looks for eos splits it",
        "make a row of each document, or name its samples (position_ids, seq_lengths)",
        DOCUMENTS, TOKENIZER,
    ),
    "two-bos": Kind(
        "a sample begins with two bos",
        "the model never sees that at inference",
        "encode the output of a template without special tokens",
        ALL, BOS,
    ),
    "id-above-vocabulary": Kind(
        "an id is not below the size of the vocabulary",
        "an error of the GPU, or the embedding of another token",
        "name the tokenizer that made these ids, or make the model's embedding larger",
        ALL, TOKENIZER,
    ),
    "negative-id": Kind(
        "an id is negative",
        "an error of the GPU",
        "-100 belongs in labels, not in ids",
    ),
    "unused-id": Kind(
        "an id belongs to no token, or to one that only fills up the vocabulary",
        "its embedding was never trained",
        "name the tokenizer that made these ids",
        ALL, TOKENIZER,
    ),
    "duplicate": Kind(
        "an earlier sample has the same ids and the same mask",
        "it counts twice",
        "tokmill mix --dedup leaves them out",
    ),
    "val-in-train": Kind(
        "a sample of val is in train too",
        "the loss of val says nothing about it",
        "tokmill mix --dedup over both, and then split",
        ALL, BOTH,
    ),
    "over-limit": Kind(
        "a sample has more tokens than --max-tokens",
        "the trainer cuts it off or drops it",
        "leave it out, or train with a longer context",
        ALL, LIMIT,
    ),
    "padding-trained": Kind(
        "padding is trained",
        "the model learns to write padding, or eos without an end",
        "set its labels to -100",
        ALL,
    ),
    "padding-attended": Kind(
        "padding is no target, but counts as a token: attention_mask is 1, or there is none",
        "costs time; before the text, it is part of the prompt",
        "cut padding off, or set attention_mask to 0",
        ALL, TOKENIZER,
    ),
    "labels-shifted": Kind(
        "labels are those of the next tokens",
        "most trainers shift them once more: the model learns to skip a token",
        "store labels at their own tokens; if your trainer shifts nothing: --alignment next",
        ROWS, MASK,
    ),
    "labels-differ": Kind(
        "a label is not the id of its token, nor of the next one",
        "the model learns a wrong token",
        "make labels of the ids",
        ROWS, MASK,
    ),
    "positions-run-on": Kind(
        "position_ids do not begin again where a sample of a packed row does",
        "samples see the ones before them",
        "count position_ids from 0 in each sample",
        ROWS,
    ),
    "positions-jump": Kind(
        "position_ids neither go on by one nor begin again with 0",
        "tokens stand at wrong places",
        "count position_ids from 0 in each sample",
        ROWS,
    ),
    "ends-differ": Kind(
        "columns that divide a row do not fit its tokens, or each other",
        "samples begin at wrong places, or the trainer stops",
        "compute them again from the lengths of the samples",
        ROWS,
    ),
    "padding-inside": Kind(
        "attention_mask is 0 between tokens that count",
        "the model does not see a part of the sample",
        "set attention_mask to 0 in padding alone",
        ROWS,
    ),
    "lengths-differ": Kind(
        "a column has another number of values than there are ids",
        "the trainer stops, or shifts what is trained",
        "cut ids, labels and masks together",
        ROWS,
    ),
    "missing-value": Kind(
        "a column, or a value in it, is null",
        "the trainer stops, or reads 0",
        "leave such rows out",
        ROWS,
    ),
    "empty": Kind(
        "there are no ids",
        "the trainer stops, or counts an empty sample",
        "leave such rows out",
        ROWS,
    ),
    "bad-mask": Kind(
        "a mask is neither 0 nor 1, or a weight is negative or no number",
        "the loss is wrong, or NaN",
        "if these are weights, name the column with --weights",
        ROWS,
    ),
    "other-columns": Kind(
        "a row has a column that the first rows do not have",
        "the trainer reads it in another way, or not at all",
        "store rows of one kind in a file",
        ROWS,
    ),
    "target-behind-end": Kind(
        "the mask of the last token trains the one behind it, and there is none",
        "the trainer reads beyond the row, or trains the next sample's first token",
        "store masks at their own tokens, or end them with 0",
        ROWS, MASK,
    ),
    "unreadable": Kind(
        "a row cannot be read: its JSON is broken, or values are no whole numbers",
        "the trainer stops, or leaves it out",
        "look at the row, which the message names",
        ROWS,
    ),
}  # fmt: skip
"""By name, in the order in which they are shown."""


def checked_kinds(names: str) -> tuple[str, ...]:
    """Return the kinds of a list with commas; `any` stands for all.

    Raises:
        UsageError: there is no such kind.
    """
    found = [name.strip() for name in names.split(",") if name.strip()]
    for name in found:
        if name not in KINDS and name != ANY:
            near = nearest(name, list(KINDS)) or f": expected {ANY}, or of {', '.join(KINDS)}"
            raise UsageError(f"no such kind of fault {name!r}{near}")
    return tuple(KINDS) if ANY in found else tuple(dict.fromkeys(found))
