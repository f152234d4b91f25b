"""Decodes the trained tokens of samples, and holds them against the text that was to be trained.

    python -m bench.sft_promise --data FILE… --tokenizers DIR[:EOS]…

With boundary split, the trained tokens of every reply must decode to exactly its text and its end
of turn. The expected text is written here once more, without tokmill's templates; decoding is the
`tokenizers` library's. A tokenizer that normalises gives the normalised text back: those samples
are counted apart, and so are those whose reply comes first with nothing before it: a sample's first
token is no target. Prints a table in Markdown; exits 1 if a sample differs.
"""

from __future__ import annotations

import argparse
import json
import sys
import unicodedata
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.libraries import is_sentencepiece, load_tokenizers
from bench.options import tokenizer_with_eos
from bench.sft_ours import Ours, read_data
from bench.sft_values import Case, Refused
from tokmill.errors import TokmillError
from tokmill.settings.sft import SftSettings

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from bench.sft_values import DataSet, Sample
    from tokmill.chat.conversation import Conversation

TEMPLATES = ("plain", "alpaca", "chatml")
_HEAD = ("template", "tokenizer", "samples", "trained tokens", "equal",
         "without the first token", "after normalization", "refused", "different")  # fmt: skip


@dataclass(slots=True)
class Counts:
    """Samples of one template and tokenizer."""

    samples: int = 0
    tokens: int = 0
    equal: int = 0
    but_first: int = 0
    normalised: int = 0
    refused: int = 0
    different: int = 0
    first: str = ""


class Decoder:
    """Return the text of trained tokens, reply by reply."""

    def __init__(self, tokenizer: Path, end: str, end_id: int) -> None:
        self._decode = _decoder(tokenizer)
        self._end = end
        self._end_id = end_id

    def texts(self, sample: Sample) -> str:
        """Return the text of all trained tokens, end to end."""
        found = []
        start = 0
        for i, (id_, is_trained) in enumerate(zip(sample.ids, sample.mask, strict=True)):
            goes_on = is_trained and id_ != self._end_id and sample.mask[i + 1 : i + 2] == [1]
            if goes_on:
                continue
            if is_trained:
                found.append(self._text(sample.ids, start, i + 1))
            start = i + 1
        return "".join(found)

    def _text(self, ids: list[int], start: int, stop: int) -> str:
        """Return the text of a run of tokens.

        Where it goes on from other text it is decoded behind an end of turn, since else a first
        space would count as the prefix of a text. Behind an end of turn it begins as a text does.
        """
        if start == 0 or ids[start - 1] == self._end_id:
            return self._decode(ids[start:stop])
        return self._decode([self._end_id, *ids[start:stop]]).removeprefix(self._end)


def expected(conversation: Conversation, template: str, end: str) -> str:
    """Return the text that a conversation trains, by the rules of the preset `tokmill`."""
    texts = []
    for message, weight in zip(conversation.messages, conversation.weights, strict=True):
        is_trained = message["role"] == "assistant" if weight is None else weight > 0
        if not is_trained:
            continue
        text = message["content"]
        if template == "chatml":
            if reasoning := message.get("reasoning_content"):
                stripped = reasoning.strip("\n")
                text = f"<think>\n{stripped}\n</think>\n\n{text}"
            text += _calls(message)
        texts.append(text + end)
    return "".join(texts)


def begins_trained(conversation: Conversation, template: str) -> bool:
    """Return whether the first token of a sample is of a reply; such a token is no target."""
    if template != "plain":
        return False
    for message, weight in zip(conversation.messages, conversation.weights, strict=True):
        if message["role"] == "assistant":
            return weight != 0
        if message["content"]:
            return False
    return False


def _calls(message: Mapping[str, Any]) -> str:
    written = []
    for call in message.get("tool_calls", ()):
        function = call["function"]
        arguments = function["arguments"]
        if not isinstance(arguments, str):
            arguments = json.dumps(arguments, ensure_ascii=False)
        body = f'{{"name": "{function["name"]}", "arguments": {arguments}}}'
        written.append(f"<tool_call>\n{body}\n</tool_call>")
    opening = "\n" if written and message["content"] else ""
    return opening + "\n".join(written)


def _decoder(tokenizer: Path) -> Callable[[list[int]], str]:
    if is_sentencepiece(tokenizer):
        from tokmill.settings.schema import TokenizerSettings
        from tokmill.tokenizer.tokenizer import load_tokenizer

        library = load_tokenizer(TokenizerSettings(str(tokenizer))).library()
    else:
        library = load_tokenizers(tokenizer)
    return lambda ids: str(library.decode(ids, skip_special_tokens=False))


def count(case: Case, data: list[DataSet]) -> Counts:
    """Decode and compare the samples of all data sets."""
    counts = Counts()
    ours = Ours(case, parse=False)
    end = ours.tokenizer.eos
    decoder = Decoder(case.tokenizer, end.content, end.id)
    for one in data:
        outcomes = ours.outcomes(one.texts)
        for i, (outcome, conversation) in enumerate(
            zip(outcomes, one.conversations, strict=True), 1
        ):
            counts.samples += 1
            if isinstance(outcome, Refused):
                counts.refused += 1
                if not outcome.reason.startswith("not in this template"):
                    counts.different += 1
                    counts.first = counts.first or f"{one.name} {i}: {outcome.reason}"
                continue
            counts.tokens += sum(outcome.mask)
            found = decoder.texts(outcome)
            wanted = expected(conversation, case.template, end.content)
            whole = replace(outcome, mask=[1, *outcome.mask[1:]])
            if found == wanted:
                counts.equal += 1
            elif begins_trained(conversation, case.template) and wanted == decoder.texts(whole):
                counts.but_first += 1
            elif found == unicodedata.normalize("NFC", wanted):
                counts.normalised += 1
            else:
                counts.different += 1
                counts.first = (
                    counts.first or f"{one.name} {i}: {found[:80]!r}, not {wanted[:80]!r}"
                )
    return counts


def main() -> None:
    """Compare, print, exit 1 at a difference."""
    args = _parser().parse_args()
    data = [read_data(path, args.limit) for path in args.data]
    lines = [_HEAD, ("---", "---", *["---:"] * (len(_HEAD) - 2))]
    n_different = 0
    for tokenizer, eos in map(tokenizer_with_eos, args.tokenizers):
        for template in args.templates.split(","):
            end = "<|im_end|>" if template == "chatml" else eos
            case = Case(tokenizer, SftSettings(template=template), template, end)
            try:
                found = count(case, data)
            except TokmillError as error:
                print(f"{template}, {tokenizer.name}: {error}", file=sys.stderr)
                continue
            if found.samples == found.refused:
                print(f"{template}, {tokenizer.name}: {found.first}", file=sys.stderr)
                continue
            numbers = (
                found.samples, found.tokens, found.equal, found.but_first, found.normalised,
                found.refused,
            )  # fmt: skip
            n_different += found.different
            lines.append((template, tokenizer.name, *map(str, (*numbers, found.different))))
            print(f"{lines[-1]} {found.first}", file=sys.stderr)
    print("\n".join(f"| {' | '.join(line)} |" for line in lines))
    sys.exit(1 if n_different else 0)


def _parser() -> argparse.ArgumentParser:
    summary = (__doc__ or "").splitlines()[0]
    parser = argparse.ArgumentParser(prog="python -m bench.sft_promise", description=summary)
    add = parser.add_argument
    add("--data", nargs="+", type=Path, required=True, help="JSON Lines of conversations")
    add("--tokenizers", nargs="+", required=True, metavar="DIR[:EOS]")
    add("--templates", default=",".join(TEMPLATES), help=f"of {','.join(TEMPLATES)}")
    add("--limit", type=int, default=0, help="records of each file at most, spread; 0: all")
    return parser


if __name__ == "__main__":
    main()
