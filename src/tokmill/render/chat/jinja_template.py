"""Any Jinja chat template: conversations to segments, with spans from tags or by prefixes."""

from __future__ import annotations

from itertools import chain, pairwise
from typing import TYPE_CHECKING, Any

from tokmill.errors import UsageError
from tokmill.render.chat.around import ENDLESS, check_written, look_around
from tokmill.render.chat.conversation import ChatError
from tokmill.render.chat.jinja_budget import Budget, EndlessError, size_of
from tokmill.render.chat.jinja_env import MARKS, compile_template, emitted_tokens
from tokmill.render.chat.prefix import spans_by_prefix
from tokmill.render.chat.regions import Cutter, RegionWriter
from tokmill.render.chat.shield import Shield, escaped_forms
from tokmill.render.chat.stand_ins import UNTAGGED, Tagged
from tokmill.render.chat.tags import check_unchanged, count_differs, last_alone, regions_by_tags
from tokmill.setting import flag

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tokmill.config import SftSettings
    from tokmill.render.chat.conversation import Conversation, Message
    from tokmill.render.chat.segments import Segments
    from tokmill.render.chat.shield import Marks

__all__ = ["JinjaTemplate", "emitted_tokens"]

_NO_MARKS = ("", "", "")
_REASONING = frozenset({"reasoning_content", "thinking", "reasoning"})


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
        self._compiled = compile_template(source, date=settings.date, where=where)
        self.name = where
        self.uses_tags = self._compiled.has_tags and settings.spans != "prefix"
        self._variables = {**variables, "documents": None}
        self._knows_developer = "developer" in source
        reserved = "\0".join([source, self._compiled.literals, *variables.values()])
        self._shield = Shield(control, reserved, parse=parse)
        cut = Cutter(control)
        self._last_only = settings.samples == "turn"
        self.generation_prompt, around = look_around(self._ask, self._reply, cut)
        self._writer = RegionWriter(cut, around)
        self.literals = self._compiled.literals
        _check(settings, where, has_tags=self._compiled.has_tags, has_header=around.header != "")

    def render(self, conversation: Conversation, segments: Segments) -> None:
        """Write one sample.

        Raises:
            ChatError: the template raises, writes nothing, or leaves a span unknown; text cannot be
                kept apart from control tokens; or a weight stands where nothing can be trained. The
                sample is to be discarded.
        """
        messages, tools = self._prepared(conversation.messages), conversation.tools
        marks, break_ = self._shield.marks, ""
        if not self._shield.is_clean([messages, tools]):
            (messages, tools), marks = self._shield.broken([messages, tools])
            break_ = marks[2]
        replies = [i for i, message in enumerate(messages) if message["role"] == "assistant"]
        stand_ins = conversation.stand_ins
        regions = self._regions(
            messages, tools, marks, replies, Tagged(stand_ins, conversation.hides_tags)
        )
        if not any(regions):
            raise ChatError("empty rendering", "the chat template writes nothing")
        if break_:
            _check_breaks(regions, break_)
        if self._last_only:
            replies = replies[-1:]
        weights = _weights(conversation, replies, len(regions) // 2)
        roles = _roles_between(messages, replies, len(regions) // 2)
        self._writer.write(regions, roles, weights, segments, break_=break_)

    def text_of(self, messages: list[Message]) -> str:
        """Return what it writes of messages, with nothing kept apart.

        Raises:
            ChatError: it refuses them.
        """
        return self._text(self._prepared(messages), None, _NO_MARKS, prompt=False)

    def check_written(self) -> None:
        """Make sure that it writes what replies say, as `check_written` does."""
        check_written(self._ask, self.name)

    def _prepared(self, messages: Sequence[Message]) -> list[Message]:
        """Give messages as transformers gives them to templates."""
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

    def _regions(
        self,
        messages: list[Message],
        tools: list[Any] | None,
        marks: Marks,
        replies: list[int],
        tagged: Tagged = UNTAGGED,
    ) -> list[str]:
        if not self.uses_tags:
            chosen = replies[-1:] if self._last_only else replies
            return self._by_prefix(messages, tools, chosen, tagged)
        text = self._text(messages, tools, marks, tagged, prompt=False)
        regions = regions_by_tags(text, marks, len(replies))
        if not self._compiled.is_direct:
            # A macro or a set block: filters of the template may have seen the marks.
            check_unchanged(regions, self._text(messages, tools, _NO_MARKS, tagged, prompt=False))
        return last_alone(regions, len(replies)) if self._last_only else regions

    def _by_prefix(
        self,
        messages: list[Message],
        tools: list[Any] | None,
        replies: list[int],
        tagged: Tagged,
    ) -> list[str]:
        def render(n_messages: int, *, prompt: bool) -> str:
            return self._text(messages[:n_messages], tools, _NO_MARKS, tagged, prompt=prompt)

        whole = render(len(messages), prompt=False)
        spans = spans_by_prefix(whole, render, replies, len(messages))
        edges = [0, *chain.from_iterable(spans), len(whole)]
        return [whole[start:stop] for start, stop in pairwise(edges)]

    def _text(
        self,
        messages: Sequence[Message],
        tools: list[Any] | None,
        marks: Marks,
        tagged: Tagged = UNTAGGED,
        *,
        prompt: bool,
    ) -> str:
        variables: dict[str, Any] = {
            **self._variables,
            "messages": tagged.seen(messages, prompt=prompt),
            "tools": tools,
            "add_generation_prompt": prompt,
            MARKS: marks[:2],
        }
        budget = Budget(len(messages), lambda: size_of([messages, tools]))
        try:
            return tagged.written(self._compiled.render(variables, budget))
        except EndlessError as error:
            raise ChatError(ENDLESS, f"the chat template is stopped: {error}") from None
        except MemoryError:
            raise  # it depends on the machine: the run ends, and no record is refused for it
        except Exception as error:  # a template is a program: it may raise anything
            words = str(error).strip().partition("\n")[0] or type(error).__name__
            raise ChatError("template error", f"the chat template raises: {words}") from None

    def _ask(self, messages: list[Message], *, prompt: bool) -> str:
        return self._text(messages, None, _NO_MARKS, prompt=prompt)

    def _reply(self, messages: list[Message]) -> list[str]:
        return self._regions(messages, None, self._shield.marks, [1])


def _check(settings: SftSettings, where: str, *, has_tags: bool, has_header: bool) -> None:
    """Make sure that settings can be followed.

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


def _weights(
    conversation: Conversation, replies: Sequence[int], n_spans: int
) -> list[float | None]:
    """Give the weight of each span.

    Raises:
        ChatError: another message than a reply is to be trained, or replies have weights of their
            own and the template marks more or fewer spans.
    """
    if any(conversation.weights):
        _check_weights(conversation)
    weights = [conversation.weights[i] for i in replies]
    if n_spans == len(replies):
        return weights
    if any(weight is not None for weight in weights):
        raise count_differs(len(replies), n_spans)
    return [None] * n_spans


def _check_weights(conversation: Conversation) -> None:
    for i, weight in enumerate(conversation.weights):
        role = conversation.messages[i]["role"]
        if weight and role != "assistant":
            raise ChatError(
                "weight of another role",
                f"message {i + 1} ({role}) has weight {weight}, and a Jinja template shows what "
                "the assistant says alone: use a built-in --template",
            )


def _roles_between(messages: Sequence[Message], replies: list[int], n_spans: int) -> list[str]:
    """Give the role of what stands before, between and behind spans: user, if a user speaks there.

    Rules such as "after the last user" go by it. Where spans are not those of replies it is user,
    behind the last span only if somebody does speak there.
    """
    if n_spans != len(replies):
        is_answered = messages[-1]["role"] == "assistant"
        return ["user"] * n_spans + ["system" if is_answered else "user"]
    roles = []
    edges = [-1, *replies, len(messages)]
    for start, stop in pairwise(edges):
        speakers = [message["role"] for message in messages[start + 1 : stop]]
        others = [role for role in speakers if role != "assistant"] or ["system"]
        roles.append("user" if "user" in others else others[0])
    return roles


def _check_breaks(regions: list[str], break_: str) -> None:
    """Make sure that no filter has written a break in other characters.

    Raises:
        ChatError: one has.
    """
    if any(form in region for form in escaped_forms(break_) for region in regions):
        raise ChatError(
            "control token in text",
            "a control token's string stands in a text that the template escapes, so that it "
            "cannot be kept apart: parse control tokens in text, or leave the record out",
        )
