"""Any Jinja chat template: conversations to segments, with spans from tags or by prefixes."""

from __future__ import annotations

from itertools import chain, pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

from tokmill.chat.control_strings import TokenSplitter
from tokmill.chat.conversation import ChatError
from tokmill.chat.escaping import NO_HIDDEN_TAGS, ControlEscaper, HiddenTags, escaped_forms
from tokmill.chat.jinja.budget import Budget, EndlessError, size_of, texts_of
from tokmill.chat.jinja.environment import MARKS, compile_template, variables_read
from tokmill.chat.jinja.span_writer import ENDLESS, SpanWriter, check_written, find_reply_frame
from tokmill.chat.jinja.spans import (
    ADVICE,
    PROMPT_DIFFERS,
    check_unchanged,
    keep_last_span,
    roles_between,
    spans_by_prefix,
    split_at_marks,
)
from tokmill.chat.jinja.training_templates import training_template_for
from tokmill.chat.jinja.variables import check_read, chosen_variables, option_for_prompt
from tokmill.chat.segments import Kind
from tokmill.chat.weights import EVERYTHING, span_weights, whole_text_weight
from tokmill.errors import UsageError
from tokmill.settings.names import flag

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from tokmill.chat.conversation import Conversation, Message
    from tokmill.chat.escaping import Marks
    from tokmill.chat.segments import Segments
    from tokmill.settings.sft import SftSettings

_NO_MARKS = ("", "", "")
_EMPTY = ("empty rendering", "the chat template writes nothing")
_REASONING = frozenset({"reasoning_content", "thinking", "reasoning"})


class _Said(NamedTuple):
    """What a template is given of a record."""

    messages: list[Message]
    tools: list[Any] | None
    variables: dict[str, Any] | None = None
    tagged: HiddenTags = NO_HIDDEN_TAGS


class JinjaTemplate:
    """Renders conversations as transformers' `apply_chat_template` does, into segments.

    `uses_tags`: spans are those of the template's generation tags; else they are found by verified
    prefix differencing. `generation_prompt`: what it writes to ask for a reply, '' if that varies.
    With one sample per turn (the settings' `samples`), only the last reply is marked as one.
    """

    def __init__(
        self,
        source: str,
        *,
        control: Mapping[str, int],
        variables: Mapping[str, str],
        settings: SftSettings,
        where: str,
        parse: bool = False,
    ) -> None:
        """Compile a template.

        `control`: strings of control tokens and their ids; where the template writes one, it is the
        token. `variables`: bos_token and its like. `where` names the template in messages. With
        `parse`, control strings in texts are control tokens as well, as in transformers.

        Raises:
            UsageError: the source is not valid Jinja, asks for today's date and the settings have
                none, or cannot mark what the settings ask for.
        """
        self._arguments: dict[str, Any] = {
            "control": control, "variables": variables, "settings": settings, "parse": parse
        }  # fmt: skip
        self._training: str | None = None
        self._source, self._option = source, ""
        self._compiled = compile_template(source, date=settings.date, where=where)
        self.name = where
        self.uses_tags = self._compiled.has_tags and settings.spans != "prefix"
        given = chosen_variables(settings)
        if given:
            check_read(given, variables_read(source) - variables.keys(), where)
        self._variables = {**variables, "documents": None, **given}
        self._knows_developer = "developer" in source
        texts = [source, self._compiled.literals, *variables.values(), *texts_of(given)]
        reserved = "\0".join(texts)
        self._escaper = ControlEscaper(control, reserved, parse=parse)
        self._cut = cut = TokenSplitter(control)
        self._last_only = settings.samples == "turn"
        self._trains_all = settings.turns == EVERYTHING
        self.generation_prompt, around = find_reply_frame(self._ask, self._reply, cut)
        self._writer = SpanWriter(cut, around)
        self.literals = self._compiled.literals
        _check(settings, where, has_tags=self._compiled.has_tags, has_header=around.header != "")

    def render(self, conversation: Conversation, segments: Segments) -> None:
        """Write one sample."""
        said: list[Any] = [
            self._prepared(conversation.messages), conversation.tools, conversation.variables
        ]  # fmt: skip
        marks, break_ = self._escaper.marks, ""
        if not self._escaper.is_clean(said):
            said, marks = self._escaper.escaped(said)
            break_ = marks[2]
        tagged = HiddenTags(conversation.placeholders, conversation.hides_tags)
        given = _Said(said[0], said[1], said[2], tagged)
        if self._trains_all:
            self._write_all(given, whole_text_weight(conversation), break_, segments)
            return
        messages = given.messages
        replies = [i for i, message in enumerate(messages) if message["role"] == "assistant"]
        try:
            regions = self._regions(given, marks, replies)
        except ChatError as error:
            raise self._advised(error) from None
        if not any(regions):
            raise ChatError(*_EMPTY)
        if break_:
            _check_breaks(regions, break_)
        if self._last_only:
            replies = replies[-1:]
        weights = span_weights(conversation, replies, len(regions) // 2)
        roles = roles_between(messages, replies, len(regions) // 2)
        self._writer.write(regions, roles, weights, segments, break_=break_)

    def text_of(self, messages: list[Message]) -> str:
        """Return what it writes of messages, with nothing kept apart."""
        return self._ask(self._prepared(messages), prompt=False)

    def _advised(self, error: ChatError) -> ChatError:
        """Return an error that names the training template of this format, if there is one."""
        if ADVICE not in error.message:
            return error
        if self._training is None:
            self._training = training_template_for(self._plain, self._other)
            if not self._training:
                self._option = option_for_prompt(variables_read(self._source), self._with)
        if self._training:
            advice = f"choose --template {self._training}"
        elif self._option and error.reason == PROMPT_DIFFERS:
            advice = f"try {self._option}, or {ADVICE}"
        else:
            return error
        return ChatError(error.reason, error.message.replace(ADVICE, advice))

    def _with(self, messages: list[Message], asks: bool, given: Mapping[str, bool]) -> str:
        said = _Said(self._prepared(messages), None, dict(given))
        return self._text(said, _NO_MARKS, prompt=asks)

    def _plain(self, messages: list[Message], asks: bool) -> str:
        return self._ask(messages, prompt=asks)

    def _other(self, source: str) -> Callable[[list[Message], bool], str]:
        """Return what renders as another template does, for the same tokenizer."""
        return JinjaTemplate(source, where=self.name, **self._arguments)._plain

    def _write_all(
        self, said: _Said, weight: float | None, break_: str, segments: Segments
    ) -> None:
        """Write a sample as one turn: when all is trained, nobody asks who speaks where."""
        text = self._text(said, _NO_MARKS, prompt=False)
        if not text:
            raise ChatError(*_EMPTY)
        if break_:
            _check_breaks([text], break_)
        # Its replies are unknown, and so nothing is said of them.
        segments.begin_turn("user", weight)
        pieces = [piece.replace(break_, "") if break_ else piece for piece in self._cut(text)]
        segments.pieces(pieces, Kind.CONTENT)

    def check_written(self) -> None:
        """Check that it writes what replies say, as `check_written` does."""
        check_written(self._ask, self.name)

    def _prepared(self, messages: Sequence[Message]) -> list[Message]:
        """Return messages as transformers gives them to templates."""
        prepared = []
        for message in messages:
            if None in message.values():
                message = {key: value for key, value in message.items() if value is not None}
            if message["role"] == "developer" and not self._knows_developer:
                message = {**message, "role": "system"}
            if not _REASONING.isdisjoint(message):
                names = ("reasoning_content", "thinking", "reasoning")
                reasoning = next(message[name] for name in names if name in message)
                message = {"thinking": reasoning, **message, "reasoning_content": reasoning}
            prepared.append(message)
        return prepared

    def _regions(self, said: _Said, marks: Marks, replies: list[int]) -> list[str]:
        if not self.uses_tags:
            return self._by_prefix(said, replies[-1:] if self._last_only else replies)
        text = self._text(said, marks, prompt=False)
        regions = split_at_marks(text, marks, len(replies))
        if not self._compiled.is_direct:
            # A macro or a set block: filters of the template may have seen the marks.
            check_unchanged(regions, self._text(said, _NO_MARKS, prompt=False))
        return keep_last_span(regions, len(replies)) if self._last_only else regions

    def _by_prefix(self, said: _Said, replies: list[int]) -> list[str]:
        messages = said.messages

        def render(n_messages: int, *, prompt: bool) -> str:
            part = _Said(messages[:n_messages], said.tools, said.variables, said.tagged)
            return self._text(part, _NO_MARKS, prompt=prompt)

        whole = render(len(messages), prompt=False)
        spans = spans_by_prefix(whole, render, replies, len(messages))
        edges = [0, *chain.from_iterable(spans), len(whole)]
        return [whole[start:stop] for start, stop in pairwise(edges)]

    def _text(self, said: _Said, marks: Marks, *, prompt: bool) -> str:
        variables: dict[str, Any] = {
            **self._variables,
            **(said.variables or {}),
            "messages": said.tagged.seen(said.messages, prompt=prompt),
            "tools": said.tools,
            "add_generation_prompt": prompt,
            MARKS: marks[:2],
        }
        budget = Budget(len(said.messages), lambda: size_of(said[:3]))
        try:
            return said.tagged.written(self._compiled.render(variables, budget))
        except EndlessError as error:
            raise ChatError(ENDLESS, f"the chat template is stopped: {error}") from None
        except MemoryError:
            raise  # it depends on the machine: the run ends, and no record is refused for it
        except Exception as error:  # a template is a program: it may raise anything
            words = str(error).strip().partition("\n")[0] or type(error).__name__
            raise ChatError("template error", f"the chat template raises: {words}") from None

    def _ask(self, messages: list[Message], *, prompt: bool) -> str:
        return self._text(_Said(messages, None), _NO_MARKS, prompt=prompt)

    def _reply(self, messages: list[Message]) -> list[str]:
        return self._regions(_Said(messages, None), self._escaper.marks, [1])


def _check_breaks(regions: list[str], break_: str) -> None:
    """Check that no filter has written a break in other characters."""
    if any(form in region for form in escaped_forms(break_) for region in regions):
        raise ChatError(
            "control token in text",
            "a control token's string stands in a text that the template escapes, so that it "
            "cannot be kept apart: parse control tokens in text, or leave the record out",
        )


def _check(settings: SftSettings, where: str, *, has_tags: bool, has_header: bool) -> None:
    """Check that settings can be followed.

    Raises:
        UsageError: one asks for what a Jinja template does not show.
    """
    if settings.spans == "tags" and not has_tags:
        raise UsageError(
            f"{where}: has no generation tags, and --spans tags (sft.spans) asks for them: "
            "use --spans prefix, or a template with tags"
        )
    if set(settings.roles) != {"assistant"}:
        raise UsageError(
            "--roles (sft.roles): a Jinja template shows what the assistant says alone, found "
            f"{', '.join(settings.roles) or 'no role'}: use a built-in --template"
        )
    for name in ("reasoning", "tool_calls"):
        if getattr(settings, name) == "mask":
            raise UsageError(
                f"{flag('sft', name)} (sft.{name}): a Jinja template does not show which part of a "
                "reply that is: use a built-in --template"
            )
    if settings.header == "train" and not has_header:
        raise UsageError(
            f"--header (sft.header): {where} has no header that is always the same: use a built-in "
            "--template"
        )
