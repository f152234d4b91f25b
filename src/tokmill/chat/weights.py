"""Which tokens are trained: the weight of every segment of a sample in the loss.

The weight of a turn is decided in this order:

    record   a message's `train`, `weight`, `masked`, …, times the record's own `weight`; within the
             message, a part of its content may have a weight that multiplies it
    prompt   0 for messages of `prompt` beside `completion`, unless everything is trained; with
             --samples turn, 0 for all messages but the last reply
    rule     where the record gives none (None): 1 for the roles of --roles in the turns of --turns

Within a turn, a segment has the turn's weight if the rule trains its kind (content, header, end of
turn, …), else 0; what a pattern of --weigh matches has this weight times a factor.

A chat program sends a reply that a later user message follows without its reasoning. Such a reply
is not what the model would write if it were asked, so that it is context.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from tokmill.chat.conversation import ChatError, count_differs
from tokmill.chat.mask_rule import LARGEST_WEIGHT, is_everything
from tokmill.chat.names import CONTENT_KEYS, SWITCH_KEYS, WEIGHT_KEYS, rating, wrong_type
from tokmill.chat.segments import ROLES, Kind
from tokmill.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy.typing as npt

    from tokmill.chat.conversation import Conversation, Counts, Message
    from tokmill.chat.mask_rule import MaskRule
    from tokmill.chat.segments import SegmentTable
    from tokmill.settings.sft import SftSettings


NOT_TRAINED = 0.0


def segment_weights(
    table: SegmentTable, rule: MaskRule
) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.bool_]]:
    """Return the weight of each segment, and whether a trained turn ends behind it.

    Both have shape (n_segments,); the weights are float32.
    """
    turns = table.turns
    chosen = rule.roles[table.roles]
    if rule.turns != "all":
        chosen &= _is_late(table, chosen, rule.turns)
    weight_of_turn = np.where(np.isnan(table.turn_weights), chosen, table.turn_weights)
    of_part = np.where(np.isnan(table.turn_weights), 1, table.turn_weights)[turns] * table.factors
    weights = np.where(np.isnan(table.factors), weight_of_turn[turns], of_part)
    weights = np.where(rule.trained[table.kinds], weights * table.scales, 0)
    if weights.max(initial=0) > LARGEST_WEIGHT:
        raise UsageError("the factors of a token multiply to more than a float32", "sft.weigh")
    is_last = np.ones(len(turns), bool)
    is_last[:-1] = turns[1:] != turns[:-1]
    return weights.astype(np.float32), is_last & (weight_of_turn[turns] > 0)


def _is_late(
    table: SegmentTable, chosen: npt.NDArray[np.bool_], turns: str
) -> npt.NDArray[np.bool_]:
    """Return which turns come after the last user turn of their sample.

    With `turns` "last": which come after its last chosen turn, or are that turn.
    """
    is_limit = table.roles == ROLES.index("user")
    if turns == "last":  # one of text around turns alone is none
        is_limit = np.isin(np.arange(len(chosen)), table.turns[table.kinds != Kind.OTHER]) & chosen
    last = np.full(int(table.samples.max(initial=-1)) + 1, -1, np.int64)
    np.maximum.at(last, table.samples[is_limit], np.flatnonzero(is_limit))
    late: npt.NDArray[np.bool_] = np.arange(len(table.samples)) >= last[table.samples]
    return late


_NUMBERS = ("weight", "loss_weight", "loss_mask", "loss", "loss_scale")
_OF_MESSAGE, _OF_RECORD = frozenset(SWITCH_KEYS), frozenset(WEIGHT_KEYS)


def message_weight(item: Mapping[str, Any], settings: SftSettings, where: str) -> float | None:
    """Return the weight that a message of a record, or a part of it, gives; None if it gives none.

    Several of `SWITCH_KEYS` multiply.
    """
    if _OF_MESSAGE.isdisjoint(item):
        return None
    product: float | None = None
    for key in SWITCH_KEYS:
        value = item.get(key)
        if value is None:
            continue
        if key in _NUMBERS:
            weight = _number(value, settings, f"{where}: {key}")
        elif isinstance(value, bool):
            weight = float(value != (key == "masked"))
        else:
            raise wrong_type(f"{where}: {key}", "true or false", value)
        product = weight if product is None else product * weight
    return product


IGNORED_WEIGHTS = "weights of messages that are not replies ignored"

_OF_REPLIES = _OF_MESSAGE - {"train", "training"}
"""Keys that speak of replies in the formats that they come from; axolotl's two are for any role."""


def without_reply_weights(
    item: Mapping[str, Any], settings: SftSettings, where: str, counts: Counts
) -> Mapping[str, Any]:
    """Return a message of a record that is no reply, without weights that speak of replies.

    Those of its parts go too. `counts`: gets how many there were.
    """
    kept = dict(_without_weights(item, settings, where, counts))
    for key in CONTENT_KEYS:
        if isinstance(parts := kept.get(key), list):
            kept[key] = [_without_weights(part, settings, where, counts) for part in parts]
    return kept


def _without_weights(item: Any, settings: SftSettings, where: str, counts: Counts) -> Any:
    """Return a message, or a part of one, without weights of replies; these must be right."""
    if not isinstance(item, dict) or _OF_REPLIES.isdisjoint(item):
        return item
    message_weight(item, settings, where)
    rest = {key: value for key, value in item.items() if key not in _OF_REPLIES}
    counts[IGNORED_WEIGHTS] += sum(item.get(key) is not None for key in _OF_REPLIES)
    return rest


def trains_role(role: str, settings: SftSettings) -> bool:
    """Return whether the weights of messages of a role are those of trained messages."""
    return role in ("assistant", *settings.roles) or is_everything(settings.train)


def prompt_weights(weights: Sequence[float | None]) -> list[float | None]:
    """Return the weights of a prompt's messages, all 0; refuse a message that gives another."""
    for number, weight in enumerate(weights, 1):
        if weight:
            raise ChatError(
                "contradictory weights",
                f"prompt message {number}: expected no weight in a prompt, which is not trained, "
                f"found {weight}",
            )
    return [NOT_TRAINED] * len(weights)


def times_record_weight(
    record: Mapping[str, Any],
    messages: Sequence[Message],
    weights: list[float | None],
    settings: SftSettings,
) -> list[float | None]:
    """Return the weights of messages times the record's own `weight` or `loss_weight`.

    That may be the word of a rating, such as "desirable". A message without a weight takes the
    record's if its role is trained.
    """
    if _OF_RECORD.isdisjoint(record):
        return weights
    key = "weight" if record.get("weight") is not None else "loss_weight"
    if record.get(key) is None:
        return weights
    value = record[key]
    if isinstance(value, str) and (rated := rating(value)) is not None:
        value = rated
    factor = _number(value, settings, key)
    if factor == 1:
        return weights
    if factor == 0:
        return [NOT_TRAINED] * len(weights)
    if settings.turns != "all" or is_everything(settings.train):
        raise ChatError(
            "fractional weight",
            f"{key}: expected 0 or 1 with --turns or --train=everything, found {factor}; put "
            "weights at the messages",
        )
    where = "weight of a message times that of its record"
    return [
        (factor if message["role"] in settings.roles else None)
        if weight is None
        else _number(weight * factor, settings, where)
        for weight, message in zip(weights, messages, strict=True)
    ]


def last_reply_weights(conversation: Conversation, i: int) -> list[float | None] | None:
    """Return weights for a sample that ends with message `i`: 0 for all messages but this one.

    None if that message is not trained: it is not a reply, or its weight in the record is 0.
    """
    weight = conversation.weights[i]
    if conversation.messages[i]["role"] != "assistant" or weight == 0:
        return None
    return [*([NOT_TRAINED] * i), weight]


def last_user(messages: Sequence[Message]) -> int:
    """Return the number of the last message of the user; 0 if there is none."""
    return max((i for i, message in enumerate(messages) if message["role"] == "user"), default=0)


def other_speakers(conversation: Conversation, roles: Sequence[str]) -> list[int]:
    """Return which messages of other roles than the assistant have something to train.

    By `roles`, those of the settings, or by a weight in the record. Nearly always none.
    """
    weighed = {part.message["role"] for part in conversation.parts if part.factor}
    trained = weighed.union(roles) - {"assistant"}
    if not trained and not any(conversation.weights):
        return []
    return [
        i
        for i, (message, weight) in enumerate(
            zip(conversation.messages, conversation.weights, strict=True)
        )
        if message["role"] != "assistant"
        and (message["role"] in trained if weight is None else weight)
    ]


def span_weights(
    conversation: Conversation, replies: Sequence[int], n_spans: int
) -> list[float | None]:
    """Return the weight of each span that a Jinja template marks; `replies`: their messages.

    Refuses a record that weighs replies that cannot be matched with spans.
    """
    weights = [conversation.weights[i] for i in replies]
    if n_spans == len(replies):
        return weights
    if any(weight is not None for weight in weights):
        raise count_differs(len(replies), n_spans)
    return [None] * n_spans


def whole_text_weight(conversation: Conversation) -> float | None:
    """Return the weight that all messages share, for a text whose turns are unknown."""
    weights = set(conversation.weights)
    if len(weights) == 1:
        return weights.pop()
    raise ChatError(
        "weight of another role",
        "messages have weights of their own, and a Jinja template does not show what all roles "
        "say: use a built-in --template, or train the replies alone",
    )


def _number(value: Any, settings: SftSettings, where: str) -> float:
    """Return a weight that float32 can hold; the comparison also refuses NaN."""
    if not isinstance(value, int | float) or not 0 <= value <= LARGEST_WEIGHT:
        raise wrong_type(where, "a weight of 0 or more, or true or false", value)
    if value not in (0, 1) and settings.weights == "refuse":
        raise ChatError(
            "fractional weight",
            f"{where}: expected 0 or 1, found {value}; --weights file keeps other weights",
        )
    return float(value)


DROPPED = "replies in the history without their reasoning (context; --samples turn trains each)"


def without_reasoning(chat: Conversation, counts: Counts) -> Conversation:
    """Return a chat whose history, before the last user message, is context without reasoning.

    Reasoning is in its field, or in the text between placeholders. Adds to `counts` how many
    replies had some.
    """
    end = last_user(chat.messages)
    tags = ["", ""]
    for character, placeholder in chat.placeholders.items():
        if placeholder.kind == Kind.REASONING:
            tags[placeholder.closes] += character
    # DeepSeek-R1's template leaves the newlines behind a block, LLaMA-Factory takes them away.
    rest = "" if chat.hides_tags else "\n*"
    block = re.compile(rf"\s*[{tags[0]}].*?[{tags[1]}]{rest}", re.DOTALL) if tags[0] else None
    messages = list(chat.messages)
    for i, message in enumerate(messages[:end]):
        plain = {key: value for key, value in message.items() if key != "reasoning_content"}
        if block is not None:
            plain["content"] = block.sub("", message["content"], count=1)
        if plain != message:
            counts[DROPPED] += bool(message.get("reasoning_content", "rest"))
            messages[i] = plain
    weights = [NOT_TRAINED if i < end else weight for i, weight in enumerate(chat.weights)]
    return replace(chat, messages=messages, weights=weights)
