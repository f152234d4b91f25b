"""Layers as rows of data: the parts that a family's layers are made of, and which layers have them.

A part of families.json has a kind (one of `model.Kind of block`), the tags of the layers that have
it (`at`, `unless`), its sizes where they differ from those of the model, and its tensors:

    "self_attn.q_proj: d -> a * h, bias if attention_bias"   a matrix into the part (columns)
    "self_attn.o_proj: a * h => d"                           a matrix out of it (rows)
    "self_attn.kv_a_proj: d ~> r_kv"                         a matrix that no GPUs split
    "mlp.experts.up_proj: E of d -> m"                       the matrices of E experts, stacked
    "linear_attn.conv1d.weight: c x 1 x w, unless plain"     another tensor
    "self_attn.sinks: a, columns"                            another tensor that GPUs split

A size is a key of the configuration, an expression of sizes, or several of them with `or` between
them: the first that is there. Tags come from rules, of which the first that applies holds:

    "list layer_types"                      a list with a word for each layer; "own-list": its
                                            length is the number of layers
    "letters hybrid_override_pattern"       a letter for each layer
    "numbers full_attn_idxs: full, other"   the numbers of the layers with the first tag
    "each period offset: full, other"       every such layer; "first n: dense, sparse" the first n
    "all full"                              every layer
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tokmill.bill.formula import evaluate, names_in
from tokmill.bill.models.family import Fields, Part, Shape, in_layers, vector
from tokmill.bill.models.model import Block, BlockKind, Kind, Module, Split, Tensor
from tokmill.errors import UsageError

PARTS = json.loads(Path(__file__).with_name("parts.json").read_text(encoding="utf-8"))
"""Parts that several families have."""

COMMON = {
    "L": "num_hidden_layers",
    "d": "hidden_size",
    "V": "vocab_size",
    "a": "num_attention_heads",
    "k": "num_key_value_heads or a",
    "h": "head_dim or d / a",
    "f": "intermediate_size",
    "E": "num_experts",
    "e": "num_experts_per_tok",
    "m": "moe_intermediate_size",
    "f_shared": "n_shared_experts * m",
    "n_shared_experts": "n_shared_experts or 0",
    "window": "sliding_window or 0",
    "s_chunk": "chunk_size or mamba_chunk_size or 256",
}
"""Sizes that mean the same in every family, under the symbols of the bill's formulas."""

KEPT: Mapping[BlockKind, tuple[str, ...]] = {
    "attention": ("a", "k", "h"),
    "latent": ("a", "k", "h", "r_kv", "r_q", "r_rope", "h_nope", "h_v"),
    "delta": ("a_k", "a_v", "d_k", "d_v", "w"),
    "lightning": ("a", "h", "s_block"),
    "mamba": ("c", "N", "r_dt", "w"),
    "mamba-2": ("c", "a_m", "N", "G", "w", "s_chunk"),
    "convolution": ("c", "w"),
    "mlp": ("f",),
    "experts": ("E", "e", "m", "f_shared"),
    "indexer": ("a_i", "h_i"),
    "compressed": ("h", "rate", "h_i", "overlap"),
    "rwkv": ("a", "h"),
    "inputs": ("p", "L_p"),
    "other": (),
}
"""The symbols of the formulas of each kind."""

_TENSOR = re.compile(
    r"(?P<name>\S+): (?:(?P<stack>\w+) of )?(?P<sizes>[^,]+)(?P<words>(?:, [^,]+)*)"
)
_ARROWS: Mapping[str, Split] = {"->": "columns", "=>": "rows", "~>": "none"}
_ARROW = re.compile(r" (->|=>|~>) ")
_MODULES: Mapping[BlockKind, Module] = {
    "attention": "attention", "latent": "attention", "mlp": "mlp", "experts": "experts",
    "other": "mlp",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Sizes:
    """The values of symbols: numbers of a configuration, and expressions of other sizes.

    A definition that names itself means the size of `outer`.
    """

    fields: Fields
    rows: Mapping[str, str]
    outer: Sizes | None = None

    def whole(self, expression: str) -> int:
        """Return the value of an expression, which must be a whole number.

        Raises:
            UsageError: it is none, or the configuration lacks a number.
        """
        value = self.value(expression)
        if value != int(value):
            shown = ", ".join(f"{name} {self.value(name):g}" for name in names_in(expression))
            raise UsageError(
                f"{self.fields.where}: {expression} is {value:g} with {shown}; expected a whole "
                "number"
            )
        return int(value)

    def value(self, expression: str) -> float:
        """Return the value of an expression of sizes."""
        return evaluate(expression, {name: self._symbol(name) for name in names_in(expression)})

    def _symbol(self, name: str) -> float:
        if name not in self.rows:
            if self.outer is None:
                raise KeyError(f"{self.fields.family.name}: no size {name}")
            return self.outer._symbol(name)
        keys = self.rows[name].split(" or ")
        for each in keys:
            if self._is_expression(each, name):
                scope = self.outer if name in names_in(each) and self.outer else self
                return scope.value(each)
            if found := self.fields.number(each):
                return found
        return self.fields.count(keys[0])

    def _is_expression(self, text: str, name: str) -> bool:
        if text == name:
            return self.outer is not None and self.outer._knows(name)
        return " " in text or text.isdigit() or self._knows(text)

    def _knows(self, name: str) -> bool:
        return name in self.rows or (self.outer is not None and self.outer._knows(name))


def tags_of(f: Fields, row: Mapping[str, Any]) -> list[set[str]]:
    """Return the tags of each layer.

    Raises:
        UsageError: a list does not have a known word for each layer.
    """
    rules, words = row.get("tags", ()), row.get("words", {})
    layers = layers_of(f, rules)
    tags: list[set[str]] = [set() for _ in range(layers)]
    known = {tag for part in row["parts"] for key in CONDITIONS for tag in part.get(key, ())}
    for alternatives in rules:
        found, key = first_that_applies(f, alternatives, layers)
        if not found and alternatives is rules[0]:
            needed = alternatives[-1].split()[1]
            raise UsageError(f"{f.where}: no {f.label(needed)}, which {f.family.name} needs")
        for own, word in zip(tags, found, strict=False):
            tag = words.get(word, word)
            if key and tag not in known:
                raise f.wrong(key, " or ".join(sorted(known)), word)
            own.add(tag)
    return tags


def first_that_applies(
    f: Fields, alternatives: Sequence[str], layers: int
) -> tuple[list[str], str]:
    """Return the tags of the first rule that applies, and the key if the user wrote them."""
    for rule in alternatives:
        if tags := _tags(f, rule, layers):
            kind, key, *_ = rule.split()
            return tags, key if kind in WORDS else ""
    return [], ""


WORDS = ("list", "own-list", "letters", "codes")
"""Rules whose tags are words of the configuration."""
CONDITIONS = ("at", "with", "unless")


def layers_of(f: Fields, rules: Sequence[Sequence[str]]) -> int:
    """Return the number of layers: the configuration's, or that of a list or pattern of layers."""
    for rule in (rule for alternatives in rules for rule in alternatives):
        kind, _, key = rule.partition(" ")
        if kind == "letters" and (pattern := f.text(key)):
            return len(pattern)
        if kind == "own-list" and (words := f.items(key, str)):
            return len(words)
    return f.count("num_hidden_layers")


def _tags(f: Fields, rule: str, layers: int) -> list[str]:
    """Return the tag of each layer by a rule, [] if the configuration has not what it reads."""
    head, _, tags = rule.partition(": ")
    kind, *keys = head.split()
    yes, _, no = tags.partition(", ")
    if kind == "all":
        return [keys[0]] * layers
    if kind == "letters":
        return list(f.text(keys[0]))
    if kind in ("list", "own-list", "codes"):
        return _listed(f, keys[0], layers, int if kind == "codes" else str)
    numbers = _numbers(f, kind, keys, layers)
    return [] if numbers is None else [yes if i in numbers else no for i in range(layers)]


def _listed(f: Fields, key: str, layers: int, kind: type) -> list[str]:
    """Return the words of a list, which has one for each layer.

    Those of layers of multi-token prediction, which come last, are left out.
    """
    found = f.items(key, kind) or []
    if len(found) == layers + f.size("num_nextn_predict_layers"):
        found = found[:layers]
    if found and len(found) != layers:
        raise f.wrong(key, f"{layers} words, one for each layer", found)
    return [str(word) for word in found]


def _numbers(f: Fields, kind: str, keys: Sequence[str], layers: int) -> set[int] | None:
    """Return the layers with the first tag of a rule, counted from 0; None if it does not apply."""
    if kind in LISTS:
        found = f.items(keys[0], int)
        is_set = found if kind == "flags" else found is not None
        return LISTS[kind](found) if is_set and found is not None else None
    if kind == "until" and f.values.get(keys[0]) in (None, -1):
        return None
    counts = [int(key) if key.isdigit() else f.size(key) for key in keys]
    holds = ORDERS[kind]
    if kind in PERIODS and not counts[0]:
        return None
    return {i for i in range(layers) if holds(i, layers, *counts)}


LISTS: Mapping[str, Callable[[list[int]], set[int]]] = {
    "numbers": set,
    "numbers-from-1": lambda found: {number - 1 for number in found},
    "flags": lambda found: {i for i, flag in enumerate(found) if flag},
}
"""The layers that a list of the configuration names: numbers, or a number for each layer."""

ORDERS: Mapping[str, Callable[..., bool]] = {
    "first": lambda i, layers, n: i < n,
    "until": lambda i, layers, n: i <= n,
    "final": lambda i, layers, n: i >= layers - n,
    "last": lambda i, layers, n: (i + 1) % n == 0,
    "last-or-end": lambda i, layers, n: (i + 1) % n == 0 or (layers < n and i == layers - 1),
    "last-and-end": lambda i, layers, n: (i + 1) % n == 0 or i == layers - 1,
    "zero-or-last": lambda i, layers, n: i == 0 or (i + 1) % n == 0,
    "multiples": lambda i, layers, n: i > 0 and i % n == 0,
    "each": lambda i, layers, n, offset: i % n == offset,
    "skip": lambda i, layers, n, offset: max(i - offset + 1, 0) % n == 0,
    "even-before": lambda i, layers, n: i < n and i % 2 == 0,
    "odd-after": lambda i, layers, n: i >= n and (i - n) % 2 == 1,
}
"""Whether layer `i` is one of a rule's first tag."""
PERIODS = ("last", "each", "skip", "multiples")


def is_asked(f: Fields, words: str) -> bool:
    """Return whether `if KEY`, `unless KEY` or `is KEY TEXT` holds; other words always do."""
    kind, _, key = words.partition(" ")
    if kind == "is":
        key, _, value = key.partition(" ")
        return f.text(key) == value
    if kind not in ("if", "unless"):
        return True
    return bool(f.number(key)) == (kind == "if")


def stack(f: Fields, row: Mapping[str, Any]) -> tuple[Shape, Part, Part, tuple[Block, ...]]:
    """Return the shape, the tensors in and outside the layers, and the blocks of a row.

    Raises:
        UsageError: a number is missing or wrong.
    """
    base = Sizes(f, row.get("sizes", {}), Sizes(f, COMMON))
    tags = tags_of(f, row)
    prefix = row.get("layer", {}).get("layers", "model.layers")
    tensors: list[Tensor] = []
    blocks = []
    for part in map(_full, row["parts"]):
        layers = layers_with(part, tags)
        if not layers or not all(is_asked(f, words) for words in part.get("when", ())):
            continue
        sizes = Sizes(f, part.get("sizes", {}), base)
        own = tensors_of(sizes, part)
        tensors += in_layers(prefix, layers, own)
        blocks.append(_block(sizes, part, layers, own))
    outside = {"kind": "other", "tensors": row.get("outside", ())}
    shape = _shape(base, len(tags), blocks, tied=row.get("tied", True))
    return shape, tuple(tensors), tensors_of(base, outside), tuple(blocks)


def _full(part: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a part with what it takes from the part of parts.json that it is like."""
    if "like" not in part:
        return part
    like = PARTS[part["like"]]
    return {
        **like,
        **part,
        "tensors": [*part.get("tensors", like["tensors"]), *part.get("and", ())],
    }


def layers_with(part: Mapping[str, Any], tags: Sequence[set[str]]) -> tuple[int, ...]:
    """Return the layers whose tags meet the conditions of a part."""
    at, every, unless = (set(part.get(key, ())) for key in CONDITIONS)
    return tuple(
        i for i, own in enumerate(tags)
        if (not at or own & at) and every <= own and not own & unless
    )  # fmt: skip


def _shape(base: Sizes, layers: int, blocks: Sequence[Block], *, tied: bool) -> Shape:
    """Return the shape of a model; heads and widths are those of its first blocks."""
    sizes: dict[str, float] = {}
    for block in blocks:
        sizes = {**block.sizes, **sizes}
    f = base.fields
    return Shape(
        layers=layers,
        hidden=base.whole("d"),
        heads=int(sizes.get("a", 0)),
        kv_heads=int(sizes.get("k", 0)),
        head_dim=int(sizes.get("h", 0)),
        ffn=int(sizes.get("f", sizes.get("m", 0))),
        vocabulary=base.whole("V"),
        tied=tied and f.flag("tie_word_embeddings"),
    )


def _block(sizes: Sizes, part: Mapping[str, Any], layers: tuple[int, ...], own: Part) -> Block:
    """Return what the bill's formulas need to know of a part."""
    kind: BlockKind = part["kind"]
    f = sizes.fields
    values = {name: float(sizes.whole(name)) for name in KEPT[kind]}
    if kind == "experts" and values["e"] > values["E"]:
        raise UsageError(
            f"{f.where}: {f.label('num_experts_per_tok')} {values['e']:g} is above "
            f"{f.label('num_experts')} {values['E']:g}"
        )
    if kind == "attention" and values["a"] % values["k"]:
        raise UsageError(
            f"{f.where}: {f.label('num_attention_heads')} {values['a']:g} is not a multiple of "
            f"{f.label('num_key_value_heads')} {values['k']:g}"
        )
    traits = {
        name
        for name, _, words in (trait.partition(", ") for trait in part.get("traits", ()))
        if is_asked(f, words)
    }
    return Block(
        kind=kind,
        layers=layers,
        sizes=values,
        window=sizes.whole(part["window"]) if part.get("window") else 0,
        traits=frozenset(traits),
        reads=sum(
            t.kind == "linear" and t.n_in == sizes.whole("d") and t.split != "rows" for t in own
        ),
    )


def tensors_of(sizes: Sizes, part: Mapping[str, Any]) -> Part:
    """Return the tensors of a part, named inside a layer."""
    prefix = f"{part['in']}." if part.get("in") else ""
    return tuple(
        tensor for text in part["tensors"] for tensor in _tensor(sizes, prefix + text, part["kind"])
    )


def _tensor(sizes: Sizes, text: str, kind: BlockKind) -> Iterator[Tensor]:
    """Yield the tensor that a line of a part describes, and its bias."""
    match = _TENSOR.fullmatch(text)
    if match is None:
        raise KeyError(text)
    words = match["words"].split(", ")[1:]
    if not all(is_asked(sizes.fields, each) for each in words):
        return
    name, arrow = match["name"], _ARROW.search(match["sizes"])
    module: Module = next(
        (_NAMED[each] for each in words if each in _NAMED), _MODULES.get(kind, "mixer")
    )
    if module == "experts" and not match["stack"]:
        module = "mlp"
    if arrow is None:
        tensor = _other(sizes, name, match["sizes"], module)
        if match["stack"]:
            shape = (sizes.whole(match["stack"]), *tensor.shape)
            tensor = replace(tensor, shape=shape, kind="experts")
        yield replace(tensor, split="columns") if "columns" in words else tensor
        return
    split = _ARROWS[arrow[1]]
    n_in, n_out = (sizes.whole(each) for each in _ARROW.split(match["sizes"])[::2])
    transposed = "transposed" in words
    shape = (n_in, n_out) if transposed else (n_out, n_in)
    if match["stack"]:
        count = sizes.whole(match["stack"])
        yield Tensor(name, (count, *shape), module, "experts", split, n_in, n_out)
        return
    is_table = "embedding" in words
    matrix: Kind = "embedding" if is_table else "linear"
    yield Tensor(f"{name}.weight", shape, module, matrix, split, n_in, n_out)
    biased = (is_asked(sizes.fields, each[5:]) for each in words if each.startswith("bias"))
    if any(biased):
        yield from vector(f"{name}.bias", n_out, module, "none" if split == "rows" else split)


_NAMED: Mapping[str, Module] = {
    "router": "router", "embedding": "embedding", "norm": "norm", "head": "head", "mlp": "mlp",
    "attention": "attention",
}  # fmt: skip


def _other(sizes: Sizes, name: str, text: str, module: Module) -> Tensor:
    """Return a tensor that is no matrix of a linear layer: a norm, a vector, a convolution."""
    shape = tuple(sizes.whole(each) for each in text.split(" x "))
    is_norm = len(shape) == 1 and "norm" in name
    return Tensor(name, shape, "norm" if is_norm else module, "vector")
