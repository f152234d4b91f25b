"""Choose the renderer of a source by the fields of its first records."""

from __future__ import annotations

import json
import re
import shlex
from dataclasses import replace
from typing import TYPE_CHECKING

from tokmill.errors import UsageError
from tokmill.fields import ENOUGH, FieldSample, counted, listed_shares, used_share
from tokmill.settings.schema import RenderSettings
from tokmill.settings.source import UnclearNamesError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from tokmill.fields import FieldBytes

_NAMES = (
    "text_field", "title_field", "summary_field", "sections_field",
    "section_title_field", "section_content_field",
)  # fmt: skip

_CHATS = ("messages", "conversations")
_SPEAKERS = ("role", "from", "speaker", "user")
_SPOKEN = ("content", "value", "text", "utterance", "message")
_ASKED = ("instruction", "prompt", "question", "query", "problem")
_ANSWERED = ("output", "response", "completion", "answer", "solution", "chosen")

_ITEM = re.compile(r"([^.\[\]]+)\[\]\.([^.\[\]]+)")
_MOST_IN_TEMPLATE = 6
_TOO_LITTLE = 0.002


def is_named(settings: RenderSettings) -> bool:
    """Return whether the settings name a renderer or fields."""
    default = RenderSettings()
    named = any(getattr(settings, name) != getattr(default, name) for name in _NAMES)
    return named or settings.renderer != default.renderer or bool(settings.template)


def detect(settings: RenderSettings, sample: FieldSample, where: str) -> RenderSettings:
    """Return the settings with the renderer, and its field, that fit the first records.

    `where` names the source in messages. Without a record the renderer is `encyclopedia`.

    Raises:
        UsageError: no renderer reads nearly all text; lists the fields with their shares.
    """
    if settings.renderer != "auto":
        return settings
    if is_named(settings) or not sample.n_records:
        return replace(settings, renderer=_named(settings, sample.keys))
    fields = sample.weighed(settings.text_field)
    holds_text = settings.text_field in _texts(sample, fields)
    if holds_text and share(fields, {settings.text_field}) >= ENOUGH:
        return replace(settings, renderer="text")  # other fields, such as comments, do not matter
    if chat := _chat(sample, fields):
        raise UsageError(f"{where}: {chat}")
    if _has_sections(settings, sample) and share(fields, _encyclopedia(settings)) >= ENOUGH:
        return replace(settings, renderer="encyclopedia")  # or article: see `sections_renderer`
    texts = _texts(sample, fields)
    if not any(n.n_bytes for n in fields.values()) and settings.text_field in sample.keys:
        return replace(settings, renderer="text")
    for name in sorted(texts, key=lambda name: -fields[name].text_bytes)[:1]:
        if share(fields, {name}) >= ENOUGH:
            return replace(settings, renderer="text", text_field=name)
    advised = _advised(settings, sample)
    table = _as_table(advised[1])
    raise UnclearNamesError(f"{where}: {_fields_found(fields)}: ", "".join(advised), table)


FORMULA_SHARE = 0.1
"""The share of Han and Kana from which records with sections are rendered by the formula of
encyclopedias; technical documentation in Chinese has 0.37 and more, in English 0."""


def sections_renderer(settings: RenderSettings, samples: Iterable[FieldSample]) -> str:
    """Return the renderer of records with title, summary and sections, by the script of all.

    A separator or terminator that is given belongs to the formula.
    """
    default = RenderSettings()
    if (settings.separator, settings.terminator) != (default.separator, default.terminator):
        return "encyclopedia"
    merged = FieldSample()
    for sample in samples:
        merged.merge(sample)
    is_chinese = merged.han_share(_encyclopedia(settings)) >= FORMULA_SHARE
    return "encyclopedia" if is_chinese or not merged.n_records else "article"


def share(fields: Mapping[str, FieldBytes], used: Collection[str]) -> float:
    """Return the share of all text that is in the used fields."""
    return used_share(counted(fields, used), used)


def advice(settings: RenderSettings, sample: FieldSample) -> str:
    """Return the options that read most of the text of the first records."""
    return "".join(_advised(settings, sample))


def _advised(settings: RenderSettings, sample: FieldSample) -> tuple[str, str, str]:
    """Return the same as a beginning, the best options ('' if there are none), and an end."""
    fields = sample.weighed(settings.text_field)
    texts = _texts(sample, fields)
    nested = _items(fields)
    n_flat = sum(fields[name].text_bytes for name in texts)
    n_nested = sum(fields[path].text_bytes for path in nested)
    if _has_sections(settings, sample) and n_nested:
        flat = f", or only the other texts with {_template(texts)}" if n_flat else ""
        name = sections_renderer(settings, [sample])
        return "take the sections with ", f"--renderer {name}", flat
    if nested and n_nested >= n_flat:
        named = replace(settings, **_names_of_sections(settings, texts, nested, fields))
        option = _sections(settings, named, sample)
        if sample.n_records > 1:
            return "take the list with ", option, ""
        name = nested[0].partition("[")[0]
        entries = shlex.quote(f".{name}[]")
        as_records = f", or its entries as records with jq -c {entries} FILE > NEW_FILE.jsonl"
        return "take the list with ", option, as_records
    fullest = max(fields, key=lambda path: fields[path].text_bytes, default="")
    if not texts or fields[fullest].text_bytes > n_flat:
        if fullest.endswith("[]") and "[]" not in fullest[:-2]:
            is_list = (
                f"{fullest[:-2]} is a list, and renderer text expects text under it: make one "
                "string of the list, or give a renderer of your own (--renderer MODULE:FUNCTION)"
            )
            return is_list, "", ""
        inside = f": make one string of {fullest}" if fullest and fields[fullest].n_bytes else ""
        return f"renderers read strings under keys of their own{inside}", "", ""
    longest = max(texts, key=lambda name: fields[name].text_bytes)
    alone = f"--renderer text --text-field {shlex.quote(longest)}"
    if len(texts) == 1:
        return "name it with ", alone, ""
    return "name all with ", _template(texts), f", or one with {alone}"


def template_option(sample: FieldSample, text_field: str) -> str:
    """Return the option that reads all text fields of the first records; '' if there is only one.

    A field with less than 0.2% of the text, such as the name of an author, does not count.
    """
    fields = sample.weighed(text_field)
    least = sum(n.text_bytes for n in fields.values()) * _TOO_LITTLE
    texts = [name for name in _texts(sample, fields) if fields[name].text_bytes >= least]
    return _template(texts) if len(texts) > 1 else ""


def nested_keys(settings: RenderSettings) -> tuple[str, ...]:
    """Return the keys whose lists may be strings of JSON, as in CSV."""
    return (settings.sections_field, *_CHATS)


def _named(settings: RenderSettings, keys: Collection[str]) -> str:
    default = RenderSettings()
    if settings.template:
        return "template"
    others = any(getattr(settings, name) != getattr(default, name) for name in _NAMES[1:])
    is_there = any(name in keys for name in settings.text_fields)
    if settings.text_field != default.text_field and (is_there or not others):
        return "text"
    return "encyclopedia"


def _encyclopedia(settings: RenderSettings) -> frozenset[str]:
    items = (settings.section_title_field, settings.section_content_field)
    sections = (f"{settings.sections_field}[].{name}" for name in items)
    return frozenset((settings.title_field, settings.summary_field, *sections))


def _has_sections(settings: RenderSettings, sample: FieldSample) -> bool:
    """Return whether sections have the named key, or are empty and title and summary exist."""
    if f"{settings.sections_field}[].{settings.section_content_field}" in sample.fields:
        return True
    wanted = {settings.title_field, settings.summary_field, settings.sections_field}
    inner = f"{settings.sections_field}["
    filled = (path for path, n in sample.fields.items() if n.n_bytes)
    return wanted <= set(sample.keys) and not any(path.startswith(inner) for path in filled)


def _texts(sample: FieldSample, fields: Mapping[str, FieldBytes]) -> list[str]:
    """Return the keys of strings that are text, in the order of the record."""
    return [
        name
        for name in sample.keys
        if name in sample.string_keys and name in fields and fields[name].text_bytes
    ]


def _items(fields: Mapping[str, FieldBytes]) -> list[str]:
    """Return the paths of texts in lists of objects."""
    return [path for path, n in fields.items() if _ITEM.fullmatch(path) and n.text_bytes]


def _chat(sample: FieldSample, fields: Mapping[str, FieldBytes]) -> str:
    """Return advice for records that are chats or instructions; '' for others."""
    inner: dict[str, set[str]] = {}
    for path in fields:
        if found := _ITEM.fullmatch(path):
            inner.setdefault(found[1], set()).add(found[2])
    for name, keys in inner.items():
        speakers, spoken = keys.intersection(_SPEAKERS), keys.intersection(_SPOKEN)
        if speakers and spoken and name not in _texts(sample, fields):
            return (
                f"the records are chats ({name}[].{min(speakers)}, {name}[].{min(spoken)}): "
                "use tokmill sft, or tokmill sft --plan to predict it; tokmill pretrain reads text"
            )
    asked, answered = (
        [key for key in keys if key in sample.string_keys] for keys in (_ASKED, _ANSWERED)
    )
    if asked and answered:
        return (
            f"the records are questions with answers ({asked[0]}, {answered[0]}): use tokmill sft, "
            f"or to pretrain on them as text name all with {_template(_strings(sample))}"
        )
    return ""


def _strings(sample: FieldSample) -> list[str]:
    """Return the keys of strings that may be text, including short answers."""
    fields = sample.weighed()
    asked = (*_ASKED, *_ANSWERED)
    texts = _texts(sample, fields)
    return [name for name in sample.keys if name in texts or name in asked]


def _fields_found(fields: Mapping[str, FieldBytes]) -> str:
    total = sum(n.text_bytes for n in fields.values())
    texts = {path: n.text_bytes for path, n in fields.items() if n.text_bytes}
    rest = [path for path in fields if path not in texts]
    found = f"found {listed_shares(texts, total)}" if texts else "found no text"
    labels = f"; without text {listed_shares(dict.fromkeys(rest, 0), 1)}" if rest else ""
    return f"the text is not in one field, {found}{labels}"


def _template(texts: Collection[str]) -> str:
    """Return the option `--template` for some fields, quoted for the shell."""
    kept = [name for name in texts if not set(name) & set("{}!:[")][:_MOST_IN_TEMPLATE]
    return "--template " + shlex.quote("\\n".join("{" + name + "}" for name in kept))


def _as_table(options: str) -> str:
    """Return options as the inside of a table of TOML."""
    words = [word.replace("\\n", "\n") for word in shlex.split(options)]
    return ", ".join(
        f"{name[2:].replace('-', '_')} = {json.dumps(value, ensure_ascii=False)}"
        for name, value in zip(words[::2], words[1::2], strict=True)
    )


def _names_of_sections(
    settings: RenderSettings, texts: list[str], nested: list[str], fields: Mapping[str, FieldBytes]
) -> dict[str, str]:
    """Return the settings with which a renderer of sections reads a list of objects."""
    content = max(nested, key=lambda path: fields[path].text_bytes)
    found = _ITEM.fullmatch(content)
    name, inner = (found[1], found[2]) if found else (content, "")
    headings = [path for path in nested if path != content and path.startswith(f"{name}[].")]
    return {
        "title_field": next(iter(texts), settings.title_field),
        "summary_field": next(iter(texts[1:]), settings.summary_field),
        "sections_field": name,
        "section_title_field": headings[0].rpartition(".")[2] if headings else "title",
        "section_content_field": inner,
    }


def _sections(settings: RenderSettings, named: RenderSettings, sample: FieldSample) -> str:
    """Return the options for the names of `named` that `settings` do not have."""
    options = (
        f"--{name.replace('_', '-')} {shlex.quote(getattr(named, name))}"
        for name in _NAMES[1:]
        if getattr(named, name) != getattr(settings, name)
    )
    return " ".join((f"--renderer {sections_renderer(named, [sample])}", *options))
