"""A decoder of Llama's kind: RMSNorm, rotary positions, gated feed-forward layers or experts."""

from __future__ import annotations

from tokmill.bill.models.build import make_model
from tokmill.bill.models.family import Fields
from tokmill.bill.models.model import Attention, Experts, Model
from tokmill.bill.models.parts import (
    Part,
    attention,
    embedding,
    gated_mlp,
    head,
    in_layers,
    norms,
)
from tokmill.bill.models.shape import Shape, rotary_bytes
from tokmill.errors import UsageError

PRE_NORMS = ("input_layernorm", "post_attention_layernorm")
FOUR_NORMS = (*PRE_NORMS, "pre_feedforward_layernorm", "post_feedforward_layernorm")


def decoder(
    f: Fields,
    s: Shape,
    *block: Part,
    choosing: Part = (),
    experts: Experts | None = None,
    attention: Attention | None = None,
    windows: tuple[int, ...] = (),
    buffer_bytes: int | None = None,
    leaves_out: tuple[str, ...] = (),
) -> Model:
    """Make a model of Llama's kind; its buffers are by default those of rotary positions.

    Every layer holds `block`. Of a mixture the layers of `experts` hold `choosing` too, and the
    others a gated layer.
    """
    tensors = (
        *embedding("model.embed_tokens", s.vocabulary, s.hidden),
        *in_layers("model.layers", range(s.layers), *block),
        *(_mixture(s, choosing, experts) if experts else ()),
        *norms(s, "model.norm"),
        *head(s),
    )
    return make_model(
        f,
        s,
        tensors,
        attention=attention,
        windows=windows,
        experts=experts if experts and experts.layers else None,
        buffer_bytes=rotary_bytes(f, s.head_dim) if buffer_bytes is None else buffer_bytes,
        leaves_out=leaves_out,
    )


def _mixture(s: Shape, choosing: Part, experts: Experts) -> Part:
    dense = sorted(set(range(s.layers)) - set(experts.layers))
    return (
        *in_layers("model.layers", dense, gated_mlp(s.hidden, s.ffn)),
        *in_layers("model.layers", experts.layers, choosing),
    )


def gated_block(
    f: Fields, s: Shape, between: Part = (), names: tuple[str, ...] = PRE_NORMS
) -> Part:
    """Return attention whose bias the configuration chooses, `between`, a gated layer, norms."""
    bias = f.flag("attention_bias")
    return (
        *attention(s, bias=bias, out_bias=bias),
        *between,
        *gated_mlp(s.hidden, s.ffn),
        *norms(s, *names),
    )


def read_experts(
    f: Fields, layers: tuple[int, ...], *, shared_ffn: int = 0, ffn: int = 0
) -> Experts:
    """Read the shape of the experts that stand in `layers`; `ffn` is their width if none is said.

    Raises:
        UsageError: a number is missing, or a token passes more experts than there are.
    """
    count, active = f.count("num_experts"), f.count("num_experts_per_tok")
    if active > count:
        raise UsageError(
            f"{f.where}: {f.label('num_experts_per_tok')} {active} is above "
            f"{f.label('num_experts')} {count}"
        )
    return Experts(count, active, f.count("moe_intermediate_size", ffn), shared_ffn, layers)


def sparse_layers(f: Fields, layers: int) -> tuple[int, ...]:
    """Return the layers with experts: each `decoder_sparse_step`-th, less `mlp_only_layers`."""
    step, dense = f.count("decoder_sparse_step", 1), f.items("mlp_only_layers", int) or []
    return tuple(i for i in range(layers) if i not in dense and (i + 1) % step == 0)
