"""All formulas of the bill and their symbols: the page docs/formulas.md."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import groupby
from textwrap import fill, indent
from types import ModuleType

from tokmill.bill.formula import Formula

SYMBOLS: dict[str, tuple[str, str]] = {
    "D": ("documents of the dataset", ""),
    "E": ("experts of a layer", ""),
    "L_kv": ("layers whose KV cache keeps `tokens` tokens", ""),
    "G": ("state space: groups with the same B and C", ""),
    "L_p": ("width of the inputs of all layers' own", "elements"),
    "N": ("data-parallel ranks; of a state space, its states a channel", ""),
    "P": ("parameters, a tied tensor counted once", "elements"),
    "P_cast": ("elements of fp32 matrices and biases that autocast casts", "elements"),
    "P_frozen": ("frozen elements that are not quantized, of `shards` ranks", "elements"),
    "P_head": ("elements of a trained head", "elements"),
    "P_layers": ("parameters of the layers in matrix products of a token", "elements"),
    "P_linear": ("parameters of the matrices inside the layers, on one GPU (serving)", "elements"),
    "P_live": ("elements that ZeRO-3 keeps gathered", "elements"),
    "P_made": ("elements of the weight", "elements"),
    "P_other": ("all other parameters, on one GPU (serving)", "elements"),
    "P_quantized": ("elements of quantized matrices, of `shards` ranks", "elements"),
    "P_reference": ("elements of the reference model, of `shards` ranks", "elements"),
    "P_step": ("elements in a temporary copy of the optimizer's step", "elements"),
    "P_table": ("elements of the embedding table", "elements"),
    "P_trained": ("trained elements, of `shards` ranks", "elements"),
    "P_unit": ("elements of the largest layer, module or matrix gathered at once", "elements"),
    "P_used": ("active parameters in matrix products of a token, no lookup tables", "elements"),
    "R": ("processes per node", ""),
    "T": ("tokens of the dataset", "tokens"),
    "T_shard": ("tokens of the largest shard", "tokens"),
    "V": ("vocabulary; of a classifier, its labels", ""),
    "a": ("query heads", ""),
    "a_k": ("linear attention: key heads", ""),
    "a_m": ("state space (Mamba-2): heads", ""),
    "a_v": ("linear attention: value heads", ""),
    "allocated": ("size of all tensors", "B"),
    "b": ("micro batch, sequences", "sequences"),
    "batches_held": ("evaluation batches whose logits are on the GPU at once", ""),
    "beside": ("bytes stored for a token beside its id: mask 1, weight 4", "B per token"),
    "block": ("largest array of the dataset object that malloc takes from its heap", "B"),
    "buffers": ("size of tensors that are not parameters", "B"),
    "cache": ("the KV cache of all sequences", "B"),
    "c": ("channels of a state space or a short convolution", "elements"),
    "chunk": ("tokens of a chunk of a fused loss", "tokens"),
    "communicator": ("memory of a communicator of NCCL", "B"),
    "copies": ("temporary copies in the optimizer's step", ""),
    "d": ("hidden size", "elements"),
    "d_k": ("linear attention: size of a key head", "elements"),
    "d_v": ("linear attention: size of a value head", "elements"),
    "data": ("size of the dataset object in a process", "B"),
    "e": ("experts per token (active experts)", ""),
    "e_rank": ("active experts of a token on a rank, on average: e * (ranks of an expert) / u", ""),
    "elements": ("elements of an optimizer state, of `shards` ranks", "elements"),
    "epochs": ("passes over the dataset", ""),
    "experts": ("weights of the experts on a GPU", "B"),
    "f": ("width of the feed-forward layer", "elements"),
    "f_shared": ("width of the shared expert, which every token passes", "elements"),
    "files": (".bin files of the dataset, or of its packed rows", ""),
    "forked": ("memory of a forked worker that it does not share with its parent", "B"),
    "found": ("size of files found on the disk", "B"),
    "g": ("tensors of width f (feed-forward) that are alive at once", ""),
    "gather_bucket": ("elements of the bucket that gathers weights", "elements"),
    "graphs": ("CUDA graphs, in GiB", ""),
    "groups": ("groups of GPUs that communicate: one for each kind of parallelism", ""),
    "h": ("size of a head", "elements"),
    "h_i": ("size of a key of the indexer of sparse attention", "elements"),
    "h_nope": ("MLA: part of a head without position encoding", "elements"),
    "h_v": ("MLA: size of a head's value", "elements"),
    "interpreter": ("memory of a process that has imported the trainer's packages", "B"),
    "item": ("size of a token id in a file", "B per token"),
    "k": ("key-value heads", ""),
    "kept": ("checkpoints that stay on disk", ""),
    "large": ("share of ids above 256: Python makes an object for each", ""),
    "largest": ("elements of the largest matrix", "elements"),
    "layers": ("layers of a pipeline stage", ""),
    "layers_kept": ("layers whose activations are alive, summed over micro batches in flight", ""),
    "least": ("fragmentation that stays when memory is short, of the tensors", ""),
    "m": ("width of an expert", "elements"),
    "made": ("gradients that exist at this moment", "B"),
    "masked": ("1 if the dataset has a mask, else 0", ""),
    "matrix": ("the largest quantized matrix, dequantized", "B"),
    "metric_batches": ("evaluation batches whose logits are kept", ""),
    "module": ("the largest weight outside the layers", "B"),
    "n": ("tokens of a micro batch, b * s", "tokens"),
    "n_logits": ("tokens whose logits are computed at once", "tokens"),
    "n_prompt": ("prompt tokens in one forward pass", "tokens"),
    "narrow": ("shorter side of a matrix", "elements"),
    "outside": ("gathered weights outside the layers", "B"),
    "padding": ("what kernels add to the experts, relative to them", ""),
    "pickled": ("size of the pickled dataset object", "B"),
    "pieces": ("pieces of documents in packed rows", ""),
    "prefetch": ("batches that each worker loads in advance", ""),
    "q": ("bytes per element", "B per element"),
    "q_computed": ("weight in the type of the computation", "B per element"),
    "q_frozen": ("frozen weight that is not quantized", "B per element"),
    "q_gradient": ("gradient", "B per element"),
    "q_host": ("logit in host RAM, with its copies", "B per element"),
    "q_kv": ("key or value in the KV cache, with its share of the scales", "B per element"),
    "q_linear": ("matrix inside the layers, with its share of the scales", "B per element"),
    "q_logits": ("logit as metrics receive it", "B per element"),
    "q_loss": ("element in the type of the loss", "B per element"),
    "q_moment": ("optimizer moment", "B per element"),
    "q_other": ("all other weights, and activations (serving)", "B per element"),
    "q_quantized": ("quantized weight, with its share of the scales", "B per element"),
    "q_state": ("optimizer state", "B per element"),
    "q_trained": ("trained weight", "B per element"),
    "p": ("width of the layer's own input for each token", "elements"),
    "r": ("rank of the adapters", "elements"),
    "overlap": ("tokens of overlapping groups that a cache keeps", "tokens"),
    "r_dt": ("state space (Mamba): rank of the step", "elements"),
    "r_kv": ("MLA: size of the compressed keys and values", "elements"),
    "r_q": ("MLA: size of the compressed queries", "elements"),
    "r_rope": ("MLA: part of a head with position encoding", "elements"),
    "rate": ("tokens of a group that a cache keeps as one vector", "tokens"),
    "reduce_bucket": ("elements of the bucket that reduces gradients", "elements"),
    "row_tokens": ("tokens per packed row", "tokens"),
    "rows": ("packed rows", ""),
    "s": ("tokens of a sequence", "tokens"),
    "s_block": ("lightning attention: tokens of a block", "tokens"),
    "s_chunk": ("state space: tokens of a chunk", "tokens"),
    "s_layers": ("tokens that a token attends to at most, summed over the layers", "tokens"),
    "settings": ("settings and counters in manifest, plan and records", "B"),
    "share": ("fragmentation of allocated memory", ""),
    "shared": ("buffers of GPUs that share a model, in GiB", ""),
    "shards": ("ranks that share the amount: data-parallel times context-parallel ranks, or 1", ""),
    "slices": ("pieces of input, at least one per file", ""),
    "room": ("memory of the GPU beside tensors, workspaces and context", "B"),
    "split_logits": ("freed blocks of the logits that other tensors split", "B"),
    "splits": ("splits with packed rows", ""),
    "t": ("tensor-parallel degree", ""),
    "tokenizer": ("the file of the tokenizer, compressed", "B"),
    "tokens": ("tokens per sequence in a layer's KV cache", "tokens"),
    "tracker": ("memory of the process that tracks semaphores of spawned workers", "B"),
    "u": ("GPUs that split activations between the matrices: t (sequence parallelism) or 1", ""),
    "unit": ("the largest layer, gathered", "B"),
    "units": ("layers that FSDP gathers at once", ""),
    "w": ("loader workers per process; of a convolution, its width", ""),
    "w_products": ("width of the matrix products of a layer that are kept", "elements"),
    "weighted": ("1 if the dataset has loss weights, else 0", ""),
    "workspace": ("memory of cuBLAS for each thread with matrix products", "B"),
    "workspace_te": ("memory that Transformer Engine reserves for cuBLAS", "B"),
    "x": ("activation between the layers (residual stream)", "B per element"),
    "x_e": ("activation inside the experts: x, with transformers 4 (linear modules) q", "B"),
    "y": ("activation that an adapter keeps", "B per element"),
}
"""Meaning and unit by name; no unit: a count or a factor."""


_WIDTH = 80
_WITHOUT_FORMULAS = "tokmill.bill.text"
"""The package that is not imported."""
_INTRODUCTION = (
    "In Python's arithmetic; min, max and ceil are Python's. Amounts are in bytes unless a name "
    "says otherwise. `tokmill memory --formulas` prints this page; `--explain` prints the formulas "
    "of one bill with the values of their symbols."
)


@dataclass(frozen=True, slots=True)
class Subject:
    """A module of the bill: its path, its first line, and the formulas that it declares."""

    module: str
    title: str
    formulas: tuple[Formula, ...]


def subjects() -> tuple[Subject, ...]:
    """Return all modules of the bill that declare formulas, sorted by name."""
    door = importlib.import_module("tokmill.bill")
    names = sorted(info.name for info in pkgutil.walk_packages(door.__path__, "tokmill.bill."))
    own = (name for name in names if not name.startswith(_WITHOUT_FORMULAS))
    every = (_subject(importlib.import_module(name)) for name in own)
    return tuple(subject for subject in every if subject.formulas)


def formulas_page() -> str:
    """Return all formulas and symbols as a Markdown page with lines of at most 80 characters."""
    blocks = ["# Formulas of the bill", fill(_INTRODUCTION, _WIDTH)]
    for subject in subjects():
        blocks += [f"## {subject.module}", fill(subject.title, _WIDTH), *_groups(subject.formulas)]
    symbols = (
        _item(f"`{name}`: {meaning}" + (f" ({unit})" if unit else ""))
        for name, (meaning, unit) in SYMBOLS.items()
    )
    blocks += ["## Symbols", "\n".join(symbols)]
    return "\n\n".join(blocks) + "\n"


def _groups(formulas: Iterable[Formula]) -> Iterator[str]:
    """Yield source and error of neighbouring formulas that share them, and then these formulas."""
    for (source, error), members in groupby(formulas, lambda each: (each.source, each.error)):
        yield fill(f"Source: {source}. Known error: {error or 'not known'}.", _WIDTH)
        yield "\n".join(map(_formula, members))


def _formula(formula: Formula) -> str:
    """Return a name and its expression, on two lines if one is too short."""
    line = f"- {formula.name}: `{formula.expression}`"
    if len(line) <= _WIDTH:
        return line
    # Markdown would read a line that begins with `*` as an item of a list.
    tied = re.sub(r" ([-+*/]+ )", "\0\\1", f"`{formula.expression}`")
    return "\n".join(
        [_item(f"{formula.name}:"), indent(fill(tied, _WIDTH - 2), "  ").replace("\0", " ")]
    )


def _item(text: str) -> str:
    return fill(f"- {text}", _WIDTH, subsequent_indent="  ", break_on_hyphens=False)


def _subject(module: ModuleType) -> Subject:
    title = (module.__doc__ or "").strip().partition("\n")[0]
    path = module.__name__.removeprefix("tokmill.").replace(".", "/") + ".py"
    return Subject(path, title, tuple(dict.fromkeys(_declared(module))))


def _declared(module: ModuleType) -> Iterator[Formula]:
    """Yield the formulas of constants that a module assigns; it may import others."""
    for name in re.findall(r"^(\w+)(?:: .+)? = ", inspect.getsource(module), re.MULTILINE):
        yield from _formulas_in(getattr(module, name, None))


def _formulas_in(value: object) -> Iterator[Formula]:
    if isinstance(value, Formula):
        yield value
    elif isinstance(value, dict | tuple | list):
        for item in value.values() if isinstance(value, dict) else value:
            yield from _formulas_in(item)
