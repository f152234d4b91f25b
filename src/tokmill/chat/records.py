"""Records to samples, one by one."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from tokmill.chat.control_strings import (
    RENDERED_TEXTS,
    ControlStringCounter,
    RenderedTexts,
    TokenSplitter,
)
from tokmill.chat.conversation import ChatError, Counts
from tokmill.chat.escaping import cannot_carry, n_edges, with_edges
from tokmill.chat.inline_tags import InlineReader, inline_forms
from tokmill.chat.inserted import inserted_counts, note_inserted
from tokmill.chat.limits import TextLimit
from tokmill.chat.mask_rule import EMPTY_BLOCK, WEIGHED
from tokmill.chat.names import check_text, may_hold_halves
from tokmill.chat.noticed import LostFields, reply_counts
from tokmill.chat.reading.calls_in_row import has_replies_in_row, with_joined_calls
from tokmill.chat.reading.schemas import parse_record, read_conversation
from tokmill.chat.segments import Kind, Sample, columns_of
from tokmill.chat.weights import last_reply_weights, segment_weights, without_reasoning
from tokmill.tokenizer.markers import control_pattern
from tokmill.values import SampleBatch, UnreadKeys

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    import numpy.typing as npt
    import pyarrow as pa

    from tokmill.chat.control_strings import Vocabulary
    from tokmill.chat.conversation import Conversation, Message
    from tokmill.chat.limits import Unlimited
    from tokmill.chat.mask_rule import MaskRule
    from tokmill.chat.template_source import ChatTemplate
    from tokmill.settings.sft import SftSettings


class Written(NamedTuple):
    """The samples of records, and row, reason and message of each refused record.

    Plain values, which another process can send.
    """

    samples: SampleBatch
    refused: list[tuple[int, str, str]]


class _Record(NamedTuple):
    """The row of a record in its block, None for an example, and the characters of its JSON."""

    row: int | None
    n_characters: int


class RecordWriter:
    """Writes whole records with a template; threads may share one."""

    def __init__(
        self,
        settings: SftSettings,
        template: ChatTemplate,
        rule: MaskRule,
        vocabulary: Vocabulary,
        limits: Unlimited,
    ) -> None:
        self._settings = settings
        self._template = template
        self._rule = rule
        self._drops = settings.history_reasoning == "drop"
        self._vocabulary = vocabulary
        forms = inline_forms(settings, template, vocabulary)
        self._lost = LostFields(self._text_of, self._text_of_family)
        self._inline = InlineReader(forms)
        self._kept = ControlStringCounter(vocabulary)
        looked_for = self._kept.strings.union(forms.closing_tags)
        self._search = re.compile(control_pattern(looked_for)).search
        self._first_characters = {string[0] for string in looked_for}
        self._rendered = RenderedTexts(vocabulary.control)
        self._split = TokenSplitter(vocabulary.control)
        self._limits = limits

    def write(self, text: pa.LargeStringArray) -> Written:
        """Return the samples of n records, each the text of a JSON object.

        Raises:
            TemplateLimitError: the template writes too much.
        """
        outcomes = _Outcomes()
        return self._written(self._samples(text, outcomes), outcomes, len(text))

    def write_conversation(self, conversation: Conversation) -> Written:
        """Return the samples of one conversation; raises what `write` does, and `ChatError`."""
        outcomes = _Outcomes()
        with self._limits:
            samples = self._write(conversation, _Record(None, 0), outcomes)
        return self._written(samples, outcomes, 1)

    def _written(self, samples: Iterable[Sample], outcomes: _Outcomes, n_records: int) -> Written:
        """Return samples as columns; `outcomes` is read last, since making the samples fills it."""
        columns = columns_of(samples)
        weights, turn_ends = segment_weights(columns.table, self._rule)
        names_roles = bool(self._settings.role_names)
        odd = reply_counts(columns, weights, self._rule, names_roles=names_roles)
        inserted = inserted_counts(columns, weights)
        batch = SampleBatch(
            columns.text,
            columns.offsets,
            columns.ids,
            weights,
            turn_ends,
            np.array(outcomes.rows, np.int64),
            [],
            {reason: np.array(rows, np.int64) for reason, rows in outcomes.drops.items()},
            outcomes.unread(n_records),
            {**outcomes.noticed(), **odd, **inserted},
        )
        return Written(batch, outcomes.refused)

    def _samples(self, text: pa.LargeStringArray, outcomes: _Outcomes) -> Iterator[Sample]:
        """Yield the samples of records; add all else to `outcomes`."""
        with self._limits:  # until the last sample: columns of samples are not the template's
            for row, record in enumerate(text.to_pylist()):
                try:
                    conversation = read_conversation(
                        parse_record(record),
                        self._settings.schema,
                        self._settings,
                        text=record,
                    )
                    if may_hold_halves(record):
                        _check_text(conversation)
                    samples = self._write(conversation, _Record(row, len(record)), outcomes)
                except ChatError as error:
                    outcomes.refuse(row, error)
                    continue
                if conversation.unread:
                    outcomes.keep_unread(row, conversation.unread)
                yield from samples

    def _write(
        self, conversation: Conversation, record: _Record, outcomes: _Outcomes
    ) -> list[Sample]:
        """Return the samples of a conversation; add their rows and counts to `outcomes`."""
        counts = conversation.extras.noticed
        is_rendered = conversation.is_text and self._settings.rendered_text == "parse"
        plain = conversation
        if plain.parts:
            conversation = with_edges(plain)
        if not is_rendered and (conversation.is_text or self._may_hold(conversation.messages)):
            conversation = self._read(conversation, counts)
        originals = plain.messages
        if has_replies_in_row(conversation):
            conversation, numbers = with_joined_calls(conversation, counts)
            originals = [plain.messages[i] for i in numbers]
        samples = []
        n_counted = 0
        for chat in self._chats(conversation, counts):
            self._limits.begin(*record)
            sample = Sample(self._vocabulary.control, counts)
            if is_rendered:
                self._write_rendered(chat, sample)
            else:
                self._template.render(chat, sample)
                self._lost.count(chat, counts, n_counted)
                n_counted = len(chat.messages)
            n_placed = sample.replace_placeholders(chat.placeholders) if chat.placeholders else 0
            if plain.parts and (
                n_placed != n_edges(chat)
                or sample.written() != self._without_edges(plain, chat).written()
            ):
                raise cannot_carry()
            if self._rule.appends_eos:
                sample.append_eos(self._vocabulary.eos)
            note_inserted(sample, chat, originals)
            for pattern, factor in self._rule.weighed:
                n_matched = sample.weigh(pattern, factor)
                if pattern.pattern != EMPTY_BLOCK.pattern:  # that one is tokmill's own
                    counts[f"{WEIGHED}{pattern.pattern}"] += n_matched
            n_characters = sample.n_characters()
            if not n_characters:
                raise ChatError("empty", "the sample has no text")
            outcomes.text_limit.spend(n_characters, record.n_characters, record.row)
            samples.append(sample)
        _note_taken(plain, samples)
        outcomes.add(record.row or 0, len(samples), counts)
        return samples

    def _text_of(self, conversation: Conversation) -> str:
        """Return the text of a conversation as the template writes it."""
        sample = Sample(self._vocabulary.control)
        self._template.render(conversation, sample)
        return sample.whole_text()

    def _text_of_family(self, conversation: Conversation) -> tuple[str, str]:
        """Return the name of the family's training template, '' if none, and what it writes."""
        family = self._template.family
        if family is None:
            return "", ""
        sample = Sample(self._vocabulary.control)
        try:
            family.render(conversation, sample)
        except ChatError:
            return "", ""
        return family.name, sample.whole_text()

    def _without_edges(self, plain: Conversation, chat: Conversation) -> Sample:
        """Return the sample that a conversation makes without the edges of its parts."""
        conversation, _ = with_joined_calls(self._read(plain, Counts(int)), Counts(int))
        messages = conversation.messages[: len(chat.messages)]
        conversation = replace(conversation, messages=messages, weights=chat.weights)
        if self._drops:
            conversation = without_reasoning(conversation, Counts(int))
        sample = Sample(self._vocabulary.control)
        self._template.render(conversation, sample)
        if conversation.placeholders:
            sample.replace_placeholders(conversation.placeholders)
        return sample

    def _write_rendered(self, chat: Conversation, sample: Sample) -> None:
        sample.begin_turn("assistant", chat.weights[0])
        for i, piece in enumerate(self._split(chat.messages[0]["content"])):
            if i % 2:
                sample.control(piece, Kind.EOT)
            else:
                sample.text(piece, Kind.CONTENT)

    def _may_hold(self, messages: Sequence[Message]) -> bool:
        """Return whether messages hold something to read or count; searches each text once."""
        for message in messages:
            if "reasoning_content" in message:
                return True
        # One search over all contents: most are short, and a call costs more than searching them.
        text = "\0".join([message["content"] for message in messages])
        for character in self._first_characters:  # found ten times as fast; most hold none
            if character in text:
                return self._search(text) is not None
        return False

    def _read(self, conversation: Conversation, counts: Counts) -> Conversation:
        """Return a conversation as the template is to get it; add to `counts`."""
        conversation = self._inline.read(conversation, counts)
        self._kept.count(conversation.messages, counts)
        if conversation.is_text:
            text = conversation.messages[-1]["content"]
            counts[RENDERED_TEXTS] += bool(self._rendered.sign(text))
        return conversation

    def _chats(self, conversation: Conversation, counts: Counts) -> Iterator[Conversation]:
        """Yield the chat of each sample: all of it, or with --samples turn up to each reply."""
        if self._settings.samples == "conversation":
            yield without_reasoning(conversation, counts) if self._drops else conversation
            return
        chats = [
            replace(conversation, messages=conversation.messages[: i + 1], weights=weights)
            for i in range(len(conversation.messages))
            if (weights := last_reply_weights(conversation, i)) is not None
        ]
        if not chats:
            raise ChatError("no trained token", "it has no assistant turn", is_drop=True)
        yield from (
            (without_reasoning(chat, Counts(int)) for chat in chats) if self._drops else chats
        )


def _note_taken(conversation: Conversation, samples: Sequence[Sample]) -> None:
    """Leave the keys that the template took out of a conversation's unread keys.

    Raises:
        ChatError: a message has nothing that the template writes.
    """
    if not (conversation.unread or conversation.extras.bare):
        return
    taken: set[str] = set()
    of_record: set[str] = set()
    for sample in samples:
        taken |= sample.taken
        of_record |= sample.taken_of_record
    for keys, error in conversation.extras.bare:
        if keys.isdisjoint(taken):
            raise error
    if not (taken or of_record):
        return
    unread = []
    for name in conversation.unread:
        _, is_of_message, key = name.partition("[].")
        if key not in taken if is_of_message else name not in of_record:
            unread.append(name)
    conversation.unread = tuple(unread)


def _check_text(conversation: Conversation) -> None:
    """Check that what is read of a record can be UTF-8; raises `ChatError`."""
    read = [conversation.messages, conversation.tools, conversation.variables]
    check_text(read, "record")


class _Outcomes:
    """Collects the samples of several records."""

    def __init__(self) -> None:
        self.rows: list[int] = []
        self.text_limit = TextLimit()
        self.refused: list[tuple[int, str, str]] = []
        self.drops: dict[str, list[int]] = {}
        self._sets: dict[tuple[str, ...], int] = {}
        self._set_of_row: dict[int, int] = {}
        self._noticed: dict[str, list[tuple[int, int]]] = {}

    def add(self, row: int, n_samples: int, counts: Counts) -> None:
        """Keep the row of a record for each of its samples, and its counts at the first."""
        for name, n in counts.items():
            if n:
                self._noticed.setdefault(name, []).append((len(self.rows), n))
        self.rows += [row] * n_samples

    def keep_unread(self, row: int, keys: tuple[str, ...]) -> None:
        """Keep the keys of a record that nothing reads."""
        self._set_of_row[row] = self._sets.setdefault(keys, len(self._sets))

    def refuse(self, row: int, error: ChatError) -> None:
        """Keep the reason of a record that has no samples."""
        if error.is_drop:
            self.drops.setdefault(error.reason, []).append(row)
        else:
            self.refused.append((row, error.reason, error.message))

    def noticed(self) -> dict[str, npt.NDArray[np.int64]]:
        """Return the counts of each sample by name."""
        noticed = {name: np.zeros(len(self.rows), np.int64) for name in self._noticed}
        for name, counts in self._noticed.items():
            for sample, n in counts:
                noticed[name][sample] = n
        return noticed

    def unread(self, n_records: int) -> UnreadKeys | None:
        """Return the keys of n records that nothing reads."""
        if not self._sets:
            return None
        of_row = np.full(n_records, -1, np.int32)
        of_row[list(self._set_of_row)] = list(self._set_of_row.values())
        return UnreadKeys(list(self._sets), of_row)
