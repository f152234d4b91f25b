"""A model from its name, its config.json, or numbers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from tokmill.bill.models.families import KNOWN, OTHERS
from tokmill.bill.models.family import WITH_FFN, Family, Fields
from tokmill.bill.models.known import is_local, named_config, tensors_of
from tokmill.bill.models.model import LLAMA, OTHER_PARTS, UNKNOWN_LAYERS, Model
from tokmill.bill.models.quantization import as_stored
from tokmill.bill.models.shapeless import counted_model, meta_model, stored_model
from tokmill.bill.models.towers import with_tower
from tokmill.errors import UsageError
from tokmill.settings.training import ModelSettings
from tokmill.words import printable

OTHER_NAMES = {
    **OTHERS,
    "kimi_k2": "deepseek_v3", "gemma3": "gemma3_text", "qwen3_vl_text": "qwen3",
    "qwen3_vl_moe_text": "qwen3_moe",
    "RefinedWeb": "falcon", "RefinedWebModel": "falcon",
    "xlm-roberta": "roberta", "camembert": "roberta",
}  # fmt: skip
"""Other model_types of families: of a model around the text model, or of old files."""

MOST_SHOWN = 80
MOST_KEYS = 4

OPTIONS = {
    "layers": "num_hidden_layers",
    "hidden": "hidden_size",
    "heads": "num_attention_heads",
    "kv_heads": "num_key_value_heads",
    "head_dim": "head_dim",
    "ffn": "intermediate_size",
    "vocabulary": "vocab_size",
    "positions": "max_position_embeddings",
    "experts": "num_experts",
    "active_experts": "num_experts_per_tok",
    "expert_ffn": "moe_intermediate_size",
}
"""Settings that are numbers, and the keys of a configuration that they override."""

SIZES = frozenset(OPTIONS.values()) - {"max_position_embeddings"}
"""Keys that a model given by numbers never takes from the defaults of its family."""

BY_LAYER = (
    "layer_types", "layers_block_type", "hybrid_override_pattern", "mlp_layer_types",
    "mlp_only_layers", "moe_layers", "no_rope_layers", "num_decoder_layers", "full_attn_idxs",
    "attn_layer_indices", "indexer_types", "index_topk_pattern", "compress_ratios",
    "linear_attn_config.full_attn_layers", "num_kv_shared_layers",
)  # fmt: skip
"""Keys that describe each layer. Another number of layers removes them: the family's rule holds."""

WAYS = (
    "give its safetensors files or their directory (headers are enough), --parameters, or a "
    "similar model by --family and numbers"
)

NEXT_TOKENS = "num_nextn_predict_layers"
NOT_LOADED = "layers of multi-token prediction, which transformers does not load"
READ = frozenset(OPTIONS.values()) - {
    "num_experts", "num_experts_per_tok", "moe_intermediate_size"
} | {
    "model_type", "architectures", "layer_types", "tie_word_embeddings", "attention_bias",
    "mlp_bias", "use_cache", "sliding_window", "use_sliding_window", "max_window_layers",
    "pretraining_tp", "partial_rotary_factor", "quantization_config", "auto_map", "bos_token_id",
    "id2label", "label2id", "return_dict", "torchscript", "chunk_size_feed_forward",
    "output_attentions", "output_hidden_states", "is_decoder", "tf_legacy_loss", "use_bfloat16",
    NEXT_TOKENS,
}  # fmt: skip
"""Keys of an unknown decoder that are read, or change no size."""
ACTIVATIONS = ("hidden_act", "hidden_activation", "activation_function", "mlp_hidden_act")
NAMES = frozenset({
    "dtype", "torch_dtype", "transformers_version", "tokenizer_class", "hidden_act", "problem_type",
    "attn_implementation", "name_or_path", "initializer", "revision", "finetuning_task",
}) | set(ACTIVATIONS)  # fmt: skip
"""Keys of an unknown decoder whose words change no size; another word may name another layer."""
RATIOS = ("ratio", "mult", "multiplier", "expand", "expansion", "factor")
"""Ends of keys whose fractions may be multiplied with a width."""
GATED_ACTIVATIONS = ("silu", "swish", "swiglu")
"""With these a feed-forward layer has a gate; with others it may have none."""
NOT_OPENED = ("quantization_config", "rope_parameters", "id2label", "label2id")
"""Objects of a configuration whose values are no sizes of layers."""
OF_LAYERS = "per_layer_config"
FLOAT = "__float__"
HARMLESS_ENDS = ("_token_id", "_dropout", "_window", "_position_embeddings")


def load_model(settings: ModelSettings, *, vocabulary: int = 0) -> Model:
    """Return the model of the settings.

    `vocabulary` is the default for a model given by numbers.

    Raises:
        UsageError: no model is given, its name is unknown, or a number is missing or wrong.
        StorageError: a configuration cannot be read.
    """
    if settings.parameters:
        if settings != ModelSettings(parameters=settings.parameters):
            raise UsageError(
                "parameters: a number of parameters is a model by itself; leave out --model, "
                "--family and numbers of a shape, or --parameters"
            )
        return counted_model(settings.parameters)
    if not settings.name:
        return _model_by_numbers(settings, vocabulary)
    config, name, where = named_config(settings.name)
    return _model(_plain(config, where), name, where, settings)


def model_from_config(config: Mapping[str, Any], name: str = "") -> Model:
    """Return the model of the contents of a config.json.

    Raises:
        UsageError: nothing can count its tensors, or a value is missing or wrong.
    """
    where = name or "config.json"
    return _model(_plain(config, where), name, where, ModelSettings())


def _plain(config: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Return a configuration with numbers where transformers 5 writes {"__float__": "Infinity"}.

    Raises:
        UsageError: such an object holds no number.
    """

    def plain(value: Any) -> Any:
        if isinstance(value, dict):
            if value.keys() == {FLOAT}:
                return float(value[FLOAT])
            return {key: plain(each) for key, each in value.items()}
        return [plain(each) for each in value] if isinstance(value, list) else value

    try:
        return {key: plain(value) for key, value in config.items()}
    except (TypeError, ValueError, RecursionError) as error:
        raise UsageError(f"{where}: {FLOAT}: expected a number, found {error}") from error


def _model(config: Mapping[str, Any], name: str, where: str, settings: ModelSettings) -> Model:
    """Return the model of a configuration, with the numbers of the settings instead of its own."""
    if not _family_name(config, where):
        if settings != ModelSettings(name=settings.name):
            raise UsageError(
                f"{name}: its architecture is unknown, so numbers cannot change it; leave out "
                "--family and numbers of a shape"
            )
        return _of_another_kind(config, name, where, settings.name)
    fields, left_out = _fields(config, name, where)
    if settings.family not in ("", fields.family.name):
        raise UsageError(
            f"{where}: its family is {fields.family.name}, not {settings.family}; "
            "leave out --family"
        )
    model = _build_with(fields, settings, left_out)
    return as_stored(with_tower(model, config, where), config, where)


def _of_another_kind(config: Mapping[str, Any], name: str, where: str, path: str = "") -> Model:
    """Return a model of an unknown family: of its files, of transformers, or approximately.

    Raises:
        UsageError: none of these ways is open; the message says why, and names others.
    """
    kind = printable(_kind(config, where))[:MOST_SHOWN]
    if path and (is_local(path) or not config) and (entries := tensors_of(path)):
        return stored_model(name, str(config.get("model_type") or name), entries)
    if not kind:
        raise UsageError(
            f"{where}: no model_type; give a config.json of transformers, --parameters, or a "
            "directory with safetensors files"
        )
    try:
        return as_stored(meta_model(config, name), config, where)
    except UsageError as error:
        reasons = [str(error)]
    if path and not is_local(path):
        try:
            return stored_model(name, kind, tensors_of(path))
        except UsageError as error:
            reasons.append(str(error))
    unread = _not_understood(_text_config(config))
    if unread:
        named = ", ".join(printable(key)[:MOST_SHOWN] for key in unread[:MOST_KEYS])
        reasons.append(f"it is no plain decoder: {named}{', …' * (len(unread) > MOST_KEYS)}")
        raise UsageError(
            f"{where}: cannot count the parameters of {kind}: {'; '.join(reasons)}; {WAYS}"
        )
    return _approximate(config, name, where, kind, "; ".join(reasons))


def _approximate(config: Mapping[str, Any], name: str, where: str, kind: str, reason: str) -> Model:
    """Return an unknown decoder as one of Llama's kind, with a warning."""
    like = replace(KNOWN["llama"], name=kind, style=replace(LLAMA, measured=False))
    fields, left_out = _fields(config, name, where, like)
    model = like.build(fields)
    left_out += (NOT_LOADED,) if config.get(NEXT_TOKENS) else ()
    warning = (
        f"{where}: {kind} is not known ({reason}): billed approximately, as a decoder of Llama's "
        f"kind; for exact numbers, {WAYS}"
    )
    return replace(
        as_stored(model, config, where),
        leaves_out=(*model.leaves_out, *left_out, UNKNOWN_LAYERS),
        warnings=(*model.warnings, warning),
    )


def _not_understood(config: Mapping[str, Any]) -> list[str]:
    """Return the keys that may change sizes, and that Llama's configuration does not have.

    Known names, fractions, switches that are off and tables of rotary positions change no size.
    """
    if other := _other_keys(config, str(config.get("model_type"))):
        return other
    missing = [key for key in WITH_FFN if not config.get(key)]
    types = config.get("layer_types") or []
    plain = ("full_attention", "sliding_attention")
    is_plain = isinstance(types, list) and all(each in plain for each in types)
    unread = [] if is_plain else ["layer_types"]
    for key, value in config.items():
        harmless = key in READ or key.startswith(("rope_", "_")) or key.endswith(HARMLESS_ENDS)
        fraction = isinstance(value, float) and not key.endswith(RATIOS)
        if value and not harmless and not fraction and key not in NAMES:
            unread.append(key)
        if key in ACTIVATIONS and value and value not in GATED_ACTIVATIONS:
            unread.append(f"{key} {value}, with which a feed-forward layer may have no gate")
    return [f"no {key}" for key in missing] + sorted(unread)


def _fields(
    config: Mapping[str, Any], name: str, where: str, like: Family | None = None
) -> tuple[Fields, tuple[str, ...]]:
    """Return the values over the family's defaults, and the parts that are not counted."""
    text, of = _text_config(config), like or KNOWN[_family_name(config, where)]
    renamed = {of.names[key]: value for key, value in text.items() if key in of.names}
    nested = dict(_nested(text, where))
    values = {**of.defaults, **nested, **text, **renamed}  # the family's own keys win
    fields = Fields(values, of, name, where, {common: own for own, common in of.names.items()})
    if text is config:
        return fields, ()
    if "tie_word_embeddings" in config:  # the head is the whole model's
        values["tie_word_embeddings"] = config["tie_word_embeddings"]
    return fields, (OTHER_PARTS,)


def _nested(config: Mapping[str, Any], where: str) -> Iterator[tuple[str, Any]]:
    """Yield the values of objects in a configuration under both keys: "outer.inner".

    Objects that have the same keys each, by number of the layer, are one: "outer.*.inner".

    Raises:
        UsageError: their values differ.
    """
    for outer, value in config.items():
        if not isinstance(value, dict) or outer in NOT_OPENED:
            continue
        for inner, each in value.items():
            if not isinstance(each, dict):
                yield f"{outer}.{inner}", each
        rows = [each for each in value.values() if isinstance(each, dict)]
        for inner in {key for row in rows for key in row} if outer == OF_LAYERS else ():
            found = {str(row.get(inner)) for row in rows}
            if len(found) > 1:
                raise UsageError(
                    f"{where}: {outer}: expected the same {inner} in each, found "
                    f"{', '.join(sorted(found))}"
                )
            yield f"{outer}.*.{inner}", rows[0][inner]


def _text_config(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the configuration of the text model: text_config, or all of it."""
    nested = config.get("text_config")
    return nested if isinstance(nested, dict) else config


def _kind(config: Mapping[str, Any], where: str) -> str:
    """Return the model_type of the text model, or of the whole."""
    kind = _text_config(config).get("model_type") or config.get("model_type") or ""
    if not isinstance(kind, str):
        raise UsageError(f"{where}: model_type: expected a string, found {kind!r:.80}")
    return kind


def _family_name(config: Mapping[str, Any], where: str) -> str:
    """Return the family of a configuration, '' if it is of another architecture."""
    kind = _kind(config, where)
    name = OTHER_NAMES.get(kind, kind)
    return name if name in KNOWN and not _other_keys(_text_config(config), name) else ""


def _other_keys(config: Mapping[str, Any], name: str) -> list[str]:
    """Return the keys by which a configuration is of another architecture than its family."""
    return [key for key in KNOWN[name].other if config.get(key)] if name in KNOWN else []


def _model_by_numbers(settings: ModelSettings, vocabulary: int) -> Model:
    """Return a model of a family and numbers; the vocabulary may be the data set's."""
    if not settings.family:
        raise UsageError(
            "no model: give --model (tokmill memory --models lists names), --family with --layers, "
            "--hidden, --heads, --ffn, --vocabulary, or --parameters alone"
        )
    of = KNOWN[settings.family]
    where = f"family {of.name}"
    if not of.needed:
        raise UsageError(
            f"{where}: numbers alone cannot describe it; give --model with a config.json or a "
            "built-in name, and the numbers that differ"
        )
    kept = {key: value for key, value in of.defaults.items() if key not in SIZES}
    values = {**kept, **of.implied, **({"vocab_size": vocabulary} if vocabulary else {})}
    known = values.keys() | {key for _, key, _ in _overrides(settings, of)}
    missing = [_option(key) for key in of.needed if key not in known]
    if missing:
        raise UsageError(f"{where}: a model by numbers needs {', '.join(missing)} too")
    shown = {key: _option(key) for key in SIZES}
    return _build_with(Fields(values, of, of.name, where, shown), settings, ())


def _build_with(fields: Fields, settings: ModelSettings, left_out: tuple[str, ...]) -> Model:
    """Return the model with the numbers of the settings instead of those of the fields."""
    overrides = _overrides(settings, fields.family)
    changed: dict[str, object] = {key: value for _, key, value in overrides}
    shown = {key: _option(key) for key in changed}
    if settings.tied != "auto":
        changed["tie_word_embeddings"] = settings.tied == "yes"
    values = {**fields.values, **changed}
    if "num_hidden_layers" in changed:
        values = {key: value for key, value in values.items() if key not in BY_LAYER}
    fields = replace(fields, values=values, shown={**fields.shown, **shown})
    model = fields.family.build(fields)
    for option, key, value in overrides:
        if key not in fields.used:
            raise UsageError(
                f"{fields.where}: {option} {value} does not exist in {fields.family.name}"
            )
    return replace(model, leaves_out=(*model.leaves_out, *left_out))


def _overrides(settings: ModelSettings, of: Family) -> list[tuple[str, str, int]]:
    """Return option, common key and value of the numbers that are given."""
    values = [(key, getattr(settings, name)) for name, key in OPTIONS.items()]
    return [(_option(key), of.names.get(key, key), value) for key, value in values if value]


def _option(key: str) -> str:
    """Return the option of a key: num_hidden_layers -> --layers."""
    option = next((name for name, common in OPTIONS.items() if common == key), key)
    return "--" + option.replace("_", "-")
