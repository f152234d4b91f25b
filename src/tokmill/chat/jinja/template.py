"""Jinja chat templates: conversations to segments, with spans from generation tags or prefixes."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from functools import cached_property, partial
from itertools import chain, pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

from tokmill.chat.control_strings import TokenSplitter
from tokmill.chat.conversation import OF_CALLS, ChatError, count_differs
from tokmill.chat.escaping import ControlEscaper, with_separators
from tokmill.chat.jinja.environment import (
    MARKS,
    NotingMessage,
    compile_template,
    first_words,
    source_facts,
)
from tokmill.chat.jinja.span_writer import SpanWriter, find_reply_frame
from tokmill.chat.jinja.spans import (
    ADVICE,
    HIDES_TURNS,
    MOST_PREFIXES,
    MOST_PROVEN,
    check_unchanged,
    keep_spans,
    roles_between,
    spans_by_frames,
    spans_by_prefix,
    split_at_marks,
    with_contents,
)
from tokmill.chat.mask_rule import mask_rule
from tokmill.chat.names import (
    HISTORY_REASONING,
    REASONING_KEYS,
    check_read,
    chosen_variables,
    is_ours,
)
from tokmill.chat.own_templates import TRAINING, own_source
from tokmill.chat.reading.table_nulls import for_template
from tokmill.chat.segments import Kind
from tokmill.chat.weights import last_user, other_speakers, span_weights, whole_text_weight
from tokmill.errors import UsageError
from tokmill.words import plural

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tokmill.chat.conversation import Conversation, Counts, Extras, Message
    from tokmill.chat.escaping import Marks
    from tokmill.chat.segments import Placeholder, Sample
    from tokmill.settings.sft import SftSettings


_NO_MARKS = ("", "", "")
_DOCUMENTS = "documents"
"""The variable that `apply_chat_template` always gives."""

BY_TWIN = "chats of which the tokenizer's own template hides turns or reasoning, written by"
_REASONING = frozenset(REASONING_KEYS)

_TOOL_ROLES = ("tool", "environment", "observation", "ipython")
"""Names of the role tool; a template gets the first that it knows."""

_USER: Message = {"role": "user", "content": "a"}
_REPLY: Message = {"role": "assistant", "content": "b"}
_THOUGHT, _NAME = "Tw5", "Fu7"
_FUNCTION = {"name": _NAME, "description": "d", "parameters": {"type": "object", "properties": {}}}
_TOOL = {"type": "function", "function": _FUNCTION}
_CALL = {"id": "c", "type": "function", "function": {"name": _NAME, "arguments": {"x": True}}}
_CALLED: Message = {"role": "assistant", "content": "", "tool_calls": [_CALL]}
_RESULT: Message = {"role": "tool", "content": "r", "name": _NAME, "tool_call_id": "c"}
_PROBES: tuple[tuple[list[Message], list[Any] | None, bool], ...] = (
    ([_USER, _REPLY], None, False),
    ([_USER], None, True),
    ([{"role": "system", "content": "s"}, _USER], None, True),
    ([_USER, {**_REPLY, "reasoning_content": _THOUGHT}], None, False),
    ([_USER, _CALLED], None, False),
    ([_USER, _RESULT, _REPLY], None, False),
    ([_USER], [_TOOL], True),
)
"""Conversations to compare, their tools, and whether to ask for a reply.

Each shows the last turns alone, where no template hides anything. Contents without white space at
their ends: versions of one model's template differ in what they strip, and each chat is compared.
"""


class _Inputs(NamedTuple):
    """The inputs of one rendering.

    `placeholders`: characters in the messages that stand for tags. The template sees the tags; but
    with `hides_last` not those of the last message, the reply to be trained, from which many
    templates would remove them with the text between them. `extras`: has the keys of messages and
    calls of which those that the template reads are added to `taken`.
    """

    messages: list[Message]
    tools: list[Any] | None = None
    variables: Mapping[str, Any] | None = None
    placeholders: Mapping[str, Placeholder] | None = None
    hides_last: bool = False
    extras: Extras | None = None
    taken: set[str] | None = None

    def seen(self, *, prompt: bool, tool_role: str) -> list[Message]:
        """Return the messages as the template is to see them; with `prompt`, none is the reply.

        `tool_role`: its name of the role tool.
        """
        messages = self._with_tags(prompt=prompt)
        if tool_role != "tool":
            messages = [
                {**message, "role": tool_role} if message["role"] == "tool" else message
                for message in messages
            ]
        if self.extras is None or self.taken is None:
            return messages
        if self.extras.of_calls:
            messages = [self._with_noting_calls(message) for message in messages]
        watched = self.extras.keys
        if watched:
            messages = [
                message
                if watched.isdisjoint(message)
                else NotingMessage(message, watched, self.taken)
                for message in messages
            ]
        return messages

    def _with_noting_calls(self, message: Message) -> Message:
        """Return a message whose tool calls, and their functions, note what is read of them."""
        if "tool_calls" not in message or self.extras is None or self.taken is None:
            return message
        noting = partial(
            NotingMessage, watched=self.extras.of_calls, taken=self.taken, where=OF_CALLS
        )
        calls = [
            noting({**call, "function": noting(call["function"])}) for call in message["tool_calls"]
        ]
        return {**message, "tool_calls": calls}

    def _with_tags(self, *, prompt: bool) -> list[Message]:
        if not self.placeholders:
            return self.messages
        n_with_tags = len(self.messages) - (self.hides_last and not prompt)
        return [
            {**message, "content": self.written(message["content"])} if i < n_with_tags else message
            for i, message in enumerate(self.messages)
        ]

    def written(self, text: str) -> str:
        """Return a text with tags in place of their placeholders; edges of parts stay."""
        for character, placeholder in (self.placeholders or {}).items():
            if placeholder.string:
                text = text.replace(character, placeholder.string)
        return text


class JinjaTemplate:
    """Renders conversations as transformers' `apply_chat_template` does, into segments.

    `uses_tags`: spans come from the template's generation tags, not from prefixes.
    `generation_prompt`: the text that asks for a reply, '' if it varies. `literals`: the text that
    the template writes itself.
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

        `control`: ids of control tokens by their strings. `variables`: bos_token and the like.
        `where`: the template's name in messages. With `parse`, control strings in texts are control
        tokens too, as in transformers.

        Raises:
            UsageError: the source is not valid Jinja, asks for today's date without --date, or
                cannot mark what the settings ask for.
        """
        self._arguments: dict[str, Any] = {
            "control": control, "variables": variables, "settings": settings, "parse": parse
        }  # fmt: skip
        self._compiled = compile_template(source, date=settings.date, where=where)
        self.name = where
        facts = source_facts(source)
        self.literals = facts.literals
        self.uses_tags = facts.has_tags and settings.spans != "prefix"
        self._is_direct = facts.is_direct
        chosen = chosen_variables(settings)
        if chosen:
            check_read(chosen, facts.variables - variables.keys(), where)
        self._drops = settings.history_reasoning == "drop"
        self._reads_history = HISTORY_REASONING in facts.variables
        history = {HISTORY_REASONING: "drop"} if self._drops else {}
        self._chosen = chosen
        own = facts.of_loops - {_DOCUMENTS}  # a loop may forget them once they are written
        asked = facts.variables - variables.keys() - own
        self._of_record = frozenset(name for name in asked if not is_ours(name))
        self._variables = {**variables, _DOCUMENTS: None, **history, **chosen}
        self._knows_developer = "developer" in source
        strings = set(facts.literals.split("\0"))
        known = [name for name in _TOOL_ROLES if name in strings]
        self._tool_role = known[0] if known else "tool"
        self._escaper = ControlEscaper(control, parse=parse)
        self._split = TokenSplitter(control)
        self._is_strict = settings.spans == "prefix"
        self._last_only = settings.samples == "turn"
        self._roles = settings.roles
        rule = mask_rule(settings)
        self._trains_all = rule.trains_all
        self._unasked = ""
        self._unasked = self._find_unasked(variables.get("bos_token", ""))
        self.generation_prompt, frame = find_reply_frame(
            self.text_of,
            lambda messages: self._parts(_Inputs(messages), self._escaper.marks, [1])[0],
            self._split,
        )
        self._writer = SpanWriter(self._split, frame, next_role_ends=rule.next_role_ends)
        _check_settings(
            settings, where, has_tags=self.uses_tags, has_header=bool(frame.header + frame.inside)
        )

    def render(self, conversation: Conversation, sample: Sample) -> None:
        """Write one sample."""
        values: list[Any] = [
            self._prepared(conversation.messages),
            conversation.tools,
            self._variables_of(conversation, sample),
        ]
        marks, separator = self._escaper.marks, ""
        if not self._escaper.is_clean(values):
            values, separator = self._escaper.escaped(values), marks[2]
        inputs = _Inputs(
            values[0],
            values[1],
            values[2],
            conversation.placeholders,
            conversation.hides_tags,
            conversation.extras,
            sample.taken,
        )
        if self._trains_all:
            self._write_all(inputs, whole_text_weight(conversation), separator, sample)
            return
        messages = inputs.messages
        replies = [i for i, message in enumerate(messages) if message["role"] == "assistant"]
        parts, replies = self._parts(inputs, marks, replies, sample.noted)
        _check_filled(parts)
        spoken, speakers = replies, list[str]()
        if others := other_speakers(conversation, self._roles):
            parts, spoken = self._with_contents(parts, inputs, marks, replies, others)
            speakers = [conversation.messages[i]["role"] for i in spoken]
        if separator:
            parts = list(map(with_separators, parts))
        weights = span_weights(conversation, spoken, len(parts) // 2)
        roles = roles_between(messages, spoken, len(parts) // 2)
        self._writer.write(parts, roles, weights, sample, separator=separator, speakers=speakers)

    def _variables_of(self, conversation: Conversation, sample: Sample) -> Mapping[str, Any]:
        """Return the variables that a record gives: its own, and keys of it that are read here.

        Those of the settings win over such keys.
        """
        extras, own = conversation.extras.record, conversation.variables or {}
        if not extras:
            return own
        read = {key: for_template(extras[key]) for key in self._of_record if key in extras}
        sample.taken_of_record |= read.keys()
        return {**read, **self._chosen, **own}

    def text_of(
        self,
        messages: list[Message],
        *,
        tools: list[Any] | None = None,
        prompt: bool = False,
        variables: Mapping[str, Any] | None = None,
    ) -> str:
        """Return the rendering of messages without marks, perhaps with a generation prompt."""
        inputs = _Inputs(self._prepared(messages), tools, variables)
        return self._text(inputs, _NO_MARKS, prompt=prompt)

    def _find_unasked(self, bos: str) -> str:
        """Return the prompt that the template writes after any last message, as Command A's does.

        It begins with the control token that begins the text. '' if a prompt has to be asked for.
        """
        with suppress(ChatError):
            asking, replied = (self.text_of(chat) for chat in ([_USER], [_USER, _REPLY]))
            opener = self._split(asking.removeprefix(bos))[:2]
            if len(opener) == 2 and not opener[0]:
                prompt = opener[1] + asking.rpartition(opener[1])[2]
                if replied.startswith(asking) and replied.endswith(prompt):
                    return prompt if prompt != opener[1] and replied != asking else ""
        return ""

    @property
    def family(self) -> JinjaTemplate | None:
        """The training template that writes plain chats as this one does, None if none does."""
        return self._twin

    @cached_property
    def _twin(self) -> JinjaTemplate | None:
        """The training template that writes as this one does, but for turns that this one hides.

        Both must write the first small chat; a later one that one of them refuses is not compared.
        """
        if self._is_strict:
            return None
        arguments = self._arguments
        if self._last_only:  # the history is that of inference
            settings = replace(arguments["settings"], history_reasoning="drop")
            arguments = {**arguments, "settings": settings}
        if date := arguments["settings"].date:  # Llama 3.2 writes the day in this form
            day = datetime.strptime(date, "%Y-%m-%d").strftime("%d %b %Y")
            arguments = {**arguments, "variables": {**arguments["variables"], "date_string": day}}
        expected = self._probed()
        if not expected[0]:
            return None
        for name, needed in TRAINING.items():
            if set(needed) <= arguments["control"].keys():
                with suppress(UsageError):  # it does not read a variable of the settings
                    twin = JinjaTemplate(own_source(name), where=name, **arguments)
                    pairs = list(zip(twin._probed(), expected, strict=True))
                    if pairs[0][0] and all(None in pair or pair[0] == pair[1] for pair in pairs):
                        return twin
        return None

    def _probed(self) -> list[str | None]:
        """Return the rendering of each of `_PROBES`; None if refused, or if the reply is cut."""
        written: list[str | None] = []
        for messages, tools, prompt in _PROBES:
            text = None
            with suppress(ChatError):
                text = self.text_of(messages, tools=tools, prompt=prompt)
            words = [word for word in (_THOUGHT, _NAME) if word in repr(messages[-1])]
            written.append(text if text and all(word in text for word in words) else None)
        return written

    def _write_all(
        self, inputs: _Inputs, weight: float | None, separator: str, sample: Sample
    ) -> None:
        """Write a sample as one turn, because all of it is trained."""
        text = self._text(inputs, _NO_MARKS, prompt=False)
        _check_filled([text])
        if separator:
            text = with_separators(text)
        # A turn of the user, because replies are counted, and those in here are unknown.
        sample.begin_turn("user", weight)
        pieces = [part.replace(separator, "") if separator else part for part in self._split(text)]
        sample.pieces(pieces, Kind.CONTENT)

    def _prepared(self, messages: Sequence[Message]) -> list[Message]:
        """Return messages as transformers gives them to templates."""
        prepared = []
        for message in messages:
            if None in message.values():
                message = {key: value for key, value in message.items() if value is not None}
            if message["role"] == "developer" and not self._knows_developer:
                message = {**message, "role": "system"}
            if not _REASONING.isdisjoint(message):
                reasoning = next(message[name] for name in REASONING_KEYS if name in message)
                message = {
                    "thinking": reasoning,
                    "reasoning": reasoning,
                    **message,
                    "reasoning_content": reasoning,
                }
            prepared.append(message)
        return prepared

    def _parts(
        self, inputs: _Inputs, marks: Marks, replies: list[int], noted: Counts | None = None
    ) -> tuple[list[str], list[int]]:
        """Return the rendering as text, span, text, …, text, and the replies of the spans.

        Spans have odd indices. `noted` gets what a user should know.
        """
        if not self.uses_tags:
            return self._parts_without_tags(inputs, marks, replies, noted)
        parts = self._tagged_parts(inputs, marks, replies)
        kept = self._shown_as_asked(inputs, replies)
        hides_more = self._drops and self._reads_history and len(kept) > 1
        if kept == replies and not hides_more:
            return parts, replies
        if len(parts) // 2 != len(replies):
            raise count_differs(len(replies), len(parts) // 2)
        spans = [replies.index(i) for i in kept]
        if hides_more:  # such as an empty block, or what stands before results of tools
            variables = {**(inputs.variables or {}), HISTORY_REASONING: "keep"}
            asked = self._tagged_parts(inputs._replace(variables=variables), marks, replies)
            spans = [n for n in spans if asked[2 * n : 2 * n + 2] == parts[2 * n : 2 * n + 2]]
        return keep_spans(parts, spans), [replies[n] for n in spans]

    def _shown_as_asked(self, inputs: _Inputs, replies: list[int]) -> list[int]:
        """Return the replies that a sample may train: it shows them as the model writes them."""
        if self._last_only:
            return replies[-1:]
        end = last_user(inputs.messages) if self._drops else 0
        return [i for i in replies if i >= end]

    def _tagged_parts(self, inputs: _Inputs, marks: Marks, replies: list[int]) -> list[str]:
        """Return the parts of a rendering by its generation tags."""
        text = self._text(inputs, marks, prompt=False)
        parts = split_at_marks(text, marks, len(replies))
        if not self._is_direct:
            # A macro or a set block: filters of the template may have seen the marks.
            check_unchanged(parts, self._text(inputs, _NO_MARKS, prompt=False))
        return parts

    def _parts_without_tags(
        self, inputs: _Inputs, marks: Marks, replies: list[int], noted: Counts | None
    ) -> tuple[list[str], list[int]]:
        """Return the parts as the training template of the family has them, or by prefixes."""
        rendering = self._text(inputs, _NO_MARKS, prompt=False)
        parts: list[str] = []
        marked = replies
        if self._twin is not None:
            with suppress(ChatError):
                parts, marked = self._twin._parts(inputs, marks, replies)
            if "".join(parts) == rendering:
                return parts, marked
        spans: list[tuple[int, int]] | None = None
        try:
            replies = self._shown_as_asked(inputs, replies)
            spans = self._spans(rendering, inputs, marks, replies)
        except ChatError as error:
            if error.reason != HIDES_TURNS or not self._replaces(inputs, parts, replies):
                raise
        written = "".join(parts)
        thoughts = [str(inputs.messages[i].get("reasoning_content", "")).strip() for i in replies]
        is_hiding = any(written.count(text) > rendering.count(text) for text in thoughts if text)
        if spans is None or (is_hiding and self._replaces(inputs, parts, replies)):
            if noted is not None and self._twin:
                noted[f"{BY_TWIN} {self._twin.name}"] += 1
            return parts, marked
        edges = [0, *chain.from_iterable(spans), len(rendering)]
        return [rendering[start:stop] for start, stop in pairwise(edges)], replies

    def _replaces(self, inputs: _Inputs, parts: list[str], replies: list[int]) -> bool:
        """Return whether `parts` of the training template may stand for this template's text.

        Both must ask for the first reply in the same words: then tools, whose forms are many, are
        written alike; nothing is hidden there.
        """
        if not parts:  # the training template refuses the chat
            return False
        beginning = inputs._replace(messages=inputs.messages[: replies[0]])
        prompts = [
            template._text(beginning, _NO_MARKS, prompt=True)
            for template in (self, self._twin)
            if template and replies[0]
        ]
        return len(set(prompts)) < 2

    def _spans(
        self, rendering: str, inputs: _Inputs, marks: Marks, replies: list[int]
    ) -> list[tuple[int, int]]:
        """Return the span of each reply: by frames where these are proven, else by prefixes."""
        messages = inputs.messages

        def render(n_messages: int, *, prompt: bool) -> str:
            # Not `_replace`: it costs 3% of the rendering.
            beginning = _Inputs(messages[:n_messages], *inputs[1:])
            return self._text(beginning, _NO_MARKS, prompt=prompt)

        is_plain = not (inputs.tools or inputs.placeholders or inputs.variables or inputs.taken)
        if len(replies) > MOST_PROVEN and is_plain and not self._is_strict:
            other = partial(self._with_messages, inputs)
            spans = spans_by_frames(rendering, render, other, messages, replies, marks)
            if spans is not None:
                return spans
        if len(replies) * len(messages) > MOST_PREFIXES:
            raise ChatError(
                "too many turns",
                f"{plural(len(messages), 'message')}, {len(replies):,} of the assistant: this "
                "template must be rendered twice for each reply, which is done for at most "
                f"{MOST_PREFIXES:,} replies times messages: {ADVICE}",
            )
        return spans_by_prefix(rendering, render, replies, len(messages))

    def _with_contents(
        self, parts: list[str], inputs: _Inputs, marks: Marks, replies: list[int], others: list[int]
    ) -> tuple[list[str], list[int]]:
        """Return parts in which the contents of other messages are spans too; see `with_contents`.

        Raises:
            ChatError: the template does not show them.
        """
        if len(parts) // 2 != len(replies):
            raise count_differs(len(replies), len(parts) // 2)
        for template in (self, *([] if self.uses_tags or not self._twin else [self._twin])):
            render = partial(template._with_messages, inputs)
            joined = with_contents(parts, render, inputs.messages, replies, others, marks)
            if joined is not None:
                return joined
        roles = ", ".join(dict.fromkeys(inputs.messages[i]["role"] for i in others))
        raise ChatError(
            "content of another role",
            f"the template changes, repeats, moves or leaves out what {roles} says, so that it "
            "cannot be trained: train the replies alone, or use a built-in --template",
        )

    def _with_messages(self, inputs: _Inputs, messages: list[Message]) -> str:
        """Return the rendering of other messages."""
        return self._text(inputs._replace(messages=messages), _NO_MARKS, prompt=False)

    def _given(self, inputs: _Inputs, *, prompt: bool) -> dict[str, Any]:
        """Return the variables of a rendering."""
        return {
            **self._variables,
            **(inputs.variables or {}),
            "messages": inputs.seen(prompt=prompt, tool_role=self._tool_role),
            "tools": inputs.tools,
            "add_generation_prompt": prompt,
        }

    def _text(self, inputs: _Inputs, marks: Marks, *, prompt: bool) -> str:
        variables = self._given(inputs, prompt=prompt)
        variables[MARKS] = marks[:2]
        try:
            text = inputs.written(self._compiled.render(variables))
            if not text.isascii():
                text.encode()  # a template may write half a surrogate pair
            return text if prompt else text.removesuffix(self._unasked)
        except MemoryError:
            raise  # depends on the machine, so that the run ends and no record is refused
        except Exception as error:  # a template is a program: it may raise anything
            words = first_words(error)
            raise ChatError("template error", f"the chat template raises: {words}") from None


def _check_filled(parts: list[str]) -> None:
    """Check that a template has written something; raises `ChatError`."""
    if not any(parts):
        raise ChatError("empty rendering", "the chat template writes nothing")


def _check_settings(settings: SftSettings, where: str, *, has_tags: bool, has_header: bool) -> None:
    """Check that a Jinja template marks what the settings ask for.

    Raises:
        UsageError: it does not; `where` names it.
    """
    if settings.spans == "tags" and not has_tags:
        raise UsageError(
            f"{where}: has no generation tags, and --spans=tags asks for them: "
            "use --spans=prefix, or a template with tags"
        )
    rule = mask_rule(settings)
    trained = rule.trained
    for name, kind in (("reasoning", Kind.REASONING), ("tool-calls", Kind.TOOL_CALL)):
        if not trained[kind]:
            raise UsageError(
                f"leaves {name} out, which a Jinja template does not mark: name it, use a built-in "
                "--template, or mask it by a pattern such as --weigh='<think>.*?</think>=0'",
                "sft.train",
            )
    needs_header = trained[Kind.HEADER] and not (rule.trains_all or settings.preset == "torchtune")
    if not has_header and (needs_header or (has_tags and not trained[Kind.HEADER_INSIDE])):
        raise UsageError(
            f"{where} does not always write the same header: use a built-in --template", "sft.train"
        )
