"""The parts of a layer, and the rows before and after the layers."""

from __future__ import annotations

from tokmill.bill.activations.attention import attention, cross_attention
from tokmill.bill.activations.experts import experts_part
from tokmill.bill.activations.feed_forward import feed_forward
from tokmill.bill.activations.norms import norm
from tokmill.bill.activations.part import IDS, INPUT, Part, Rows, dropout, kept
from tokmill.bill.activations.situation import Situation

TRANSFORM = kept("matrix before the head: input of its activation", "q * d")


def layer_parts(at: Situation) -> tuple[Part, ...]:
    """Return the parts of a layer in the order of its forward pass.

    A mixture's layers hold experts where others have the feed-forward layer.
    """
    parts = [attention(at)]
    if at.model.cross_layers:
        parts.append(cross_attention(at))
    if at.model.experts is None or len(at.model.experts.layers) < at.model.layers:
        parts.append(feed_forward(at))
    if at.model.experts is not None:
        parts.append(experts_part(at, at.model.experts))
    return tuple(parts)


def outside_rows(at: Situation) -> Rows:
    """Return the rows before and after the layers, without the loss."""
    stack = (
        IDS,
        *(norm(at) if at.style.embedding_norm else ()),
        *dropout(at),
        *(norm(at) if at.style.final_norm else ()),
        *((INPUT,) if at.trained else ()),
    )
    if at.model.cross_layers:
        return (*stack, *dropout(at)) * 2
    if at.style.transform and at.model.labels is None:
        return (*stack, TRANSFORM, *norm(at), *((INPUT,) if at.trained else ()))
    return stack
