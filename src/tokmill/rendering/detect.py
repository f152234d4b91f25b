"""Choose the renderer of a source by the fields of its first records."""

from __future__ import annotations

import json
import re
import shlex
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from tokmill.errors import UsageError
from tokmill.rendering.fields import (
    ENOUGH,
    NO_LETTERS,
    FieldSample,
    counted,
    listed_shares,
    used_share,
)
from tokmill.settings.names import in_toml
from tokmill.settings.schema import KEYS_OF_RECORDS, RenderSettings, UnclearNamesError, role_of_pair
from tokmill.words import plural

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from tokmill.rendering.fields import FieldBytes, Letters

_CHATS = ("messages", "conversations")
_SPEAKERS = ("role", "from", "speaker", "user")
_SPOKEN = ("content", "value", "text", "utterance", "message")
_ASKED = ("instruction", "prompt", "question", "query", "problem")
_ANSWERED = ("output", "response", "completion", "answer", "solution", "chosen")

_ITEM = re.compile(r"([^.\[\]]+)\[\]\.([^.\[\]]+)")
_MOST_KINDS = 10
_NAMES_OF_TEXT = ("text", "content", "body", "document", "article")
"""Keys whose values are text even if they are single words."""

_TOO_LITTLE = 0.002


def is_named(settings: RenderSettings) -> bool:
    """Return whether the settings name a renderer or fields."""
    return replace(settings, strip_end="") != RenderSettings()


def detect(settings: RenderSettings, sample: FieldSample, where: str) -> RenderSettings:
    """Return the settings with the renderer, and its field, that fit the first records.

    `where` names the source in messages. Without a record the renderer is `sections`.

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
    if chats := chats_in(settings, sample):
        as_text = f", or to pretrain on them as text name all with {_template(_strings(sample))}"
        rest = "; tokmill pretrain reads text" if chats.startswith("chats") else as_text
        raise UsageError(f"{where}: the records are {chats}: use tokmill sft{rest}")
    if _has_sections(settings, sample) and share(fields, section_paths(settings)) >= ENOUGH:
        return replace(settings, renderer="sections")
    texts = _texts(sample, fields)
    if not any(n.n_bytes for n in fields.values()) and settings.text_field in sample.keys:
        return replace(settings, renderer="text")
    if not sample.holds_prose and not any(name in _NAMES_OF_TEXT for name in texts):
        if settings.text_field in sample.string_keys:
            return replace(settings, renderer="text")
        raise UsageError(f"{where}: {_no_text(sample)}")
    for name in sorted(texts, key=lambda name: -fields[name].text_bytes)[:1]:
        if share(fields, {name}) >= ENOUGH:
            return replace(settings, renderer="text").with_keys(text=name)
    advised = _advised(settings, sample)
    table = in_toml(advised.option)
    raise UnclearNamesError(f"{where}: {_fields_found(fields)}: ", "".join(advised), table)


FORMULA_SHARE = 0.1
"""The share of Han and Kana from which records with sections are rendered by the formula of
encyclopedias; technical documentation in Chinese has 0.37 and more, in English 0."""

HEAD_LETTERS = 5_000
"""The first records of a file that hold so many letters together decide its renderer."""

ARTICLE_SHARE = 0.02
"""The share below which a file is no Chinese page full of code, which has 0.045 and more. English
pages have 0.006 at most, if they do not quote names. Measured on 14,673 and 34,738 pages."""

LEAST_LETTERS = 40
"""Fewer letters, as of a file with one short record, show no script."""


def sections_renderer(letters: Letters, unclear: str) -> str:
    """Return the renderer of records with title, summary and sections, by the script of letters.

    `unclear`: the renderer where the letters are too few, or not clearly of either script.
    """
    if letters.n < LEAST_LETTERS or ARTICLE_SHARE <= letters.han_share < FORMULA_SHARE:
        return unclear
    return "encyclopedia" if letters.han_share >= FORMULA_SHARE else "article"


def sampled_renderer(settings: RenderSettings, samples: Iterable[FieldSample]) -> str:
    """Return the renderer of files of no clear script, by that of all files of a source."""
    letters = NO_LETTERS
    for sample in samples:
        letters = letters.plus(sample.letters(section_paths(settings)))
    is_article = letters.n and letters.han_share < FORMULA_SHARE
    return "article" if is_article else "encyclopedia"


def share(fields: Mapping[str, FieldBytes], used: Collection[str]) -> float:
    """Return the share of all text that is in the used fields."""
    return used_share(counted(fields, used), used)


def advice(settings: RenderSettings, sample: FieldSample) -> str:
    """Return the options that read most of the text of the first records."""
    return "".join(_advised(settings, sample))


class _Advice(NamedTuple):
    """What to do: a beginning, the options that do it ('' if none do), and an end."""

    beginning: str
    option: str = ""
    end: str = ""


def _advised(settings: RenderSettings, sample: FieldSample) -> _Advice:
    """Return what reads most of the text of the first records."""
    fields = sample.weighed(settings.text_field)
    texts = _texts(sample, fields)
    nested = _items(fields)
    n_flat = sum(fields[name].text_bytes for name in texts)
    n_nested = sum(fields[path].text_bytes for path in nested)
    if _has_sections(settings, sample) and n_nested:
        flat = f", or only the other texts with {_template(texts)}" if n_flat else ""
        return _Advice("take the sections with ", "--renderer=sections", flat)
    if nested and n_nested >= n_flat:
        return _advised_list(settings, sample, texts, nested)
    fullest = max(fields, key=lambda path: fields[path].text_bytes, default="")
    if not texts or fields[fullest].text_bytes > n_flat:
        return _advised_path(fullest, fields)
    return _advised_strings(sample, fields, texts)


def _advised_path(path: str, fields: Mapping[str, FieldBytes]) -> _Advice:
    """Return what reads a text that is no string under a key of its own; '' if there is none."""
    if path.endswith("[]") and "[]" not in path[:-2]:
        return _Advice(
            f"{path[:-2]} is a list, and renderer text expects text under it: make one "
            "string of the list, or give a renderer of your own (--renderer=MODULE:FUNCTION)"
        )
    is_in_objects = "." in path and "[" not in path and fields[path].text_bytes
    if is_in_objects and not set(path) & set("=,"):
        return _Advice("name it with ", _text_option(path))
    inside = f": make one string of {path}" if path and fields[path].n_bytes else ""
    return _Advice(f"renderers read strings under keys of their own{inside}")


def _advised_strings(
    sample: FieldSample, fields: Mapping[str, FieldBytes], texts: Sequence[str]
) -> _Advice:
    """Return what reads texts that are strings under keys of their own."""
    alone = _text_option(max(texts, key=lambda name: fields[name].text_bytes))
    if len(texts) == 1:
        return _Advice("name it with ", alone)
    if in_turn := _in_turn(sample, fields, texts):
        return _Advice("records have one or the other: take the filled one with ", in_turn)
    unnamed = {name: fields[name].text_bytes for name in texts if not _fits_template(name)}
    if len(unnamed) == len(texts):
        return _Advice("a template can name none of them: take one with ", alone)
    rest = f", or one with {alone}"
    if unnamed:
        total = sum(n.text_bytes for n in fields.values())
        rest = f" (without {listed_shares(unnamed, total)}, which no template can name){rest}"
    return _Advice("name all with ", _template(texts), rest)


def _text_option(path: str) -> str:
    """Return the options that read one text."""
    return f"--renderer=text --fields={shlex.quote(f'text={path}')}"


def _advised_list(
    settings: RenderSettings, sample: FieldSample, texts: list[str], nested: list[str]
) -> _Advice:
    """Return what reads a text that is in a list of objects."""
    fields = sample.weighed(settings.text_field)
    named = settings.with_keys(**_keys_of_sections(settings, texts, nested, fields))
    option = _sections(named, sample, fields)
    is_enough = share(fields, section_paths(named)) >= ENOUGH
    if sample.n_records == 1:
        # A file of one object with a list: the entries may be the records.
        name = max(nested, key=lambda path: fields[path].text_bytes).partition("[")[0]
        as_records = f"write its entries as records with {_entries_command(name, sample.where)}"
        if is_enough:
            return _Advice("take the list with ", option, f", or {as_records}")
        return _Advice(f"{name} is a list: {as_records}")
    if is_enough:
        return _Advice("take the list with ", option)
    return _Advice("give a renderer of your own (--renderer=MODULE:FUNCTION)")


def _entries_command(name: str, path: str) -> str:
    """Return the command that writes the entries of a list in a JSON file as JSON Lines."""
    is_plain = name.isascii() and name.isidentifier()
    key = name if is_plain else json.dumps(name, ensure_ascii=False)
    entries = f"jq -c {shlex.quote(f'.{key}[]')}"
    file = shlex.quote(path or "FILE")
    if path.endswith((".gz", ".gzip")):
        return f"gzip -dc < {file} | {entries} > NEW_FILE.jsonl"
    if path.endswith((".zst", ".zstd")):
        return f"zstd -dc < {file} | {entries} > NEW_FILE.jsonl"
    return f"{entries} {file} > NEW_FILE.jsonl"


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
    return (settings.key_of("sections"), *_CHATS)


def _named(settings: RenderSettings, keys: Collection[str]) -> str:
    if settings.template:
        return "template"
    roles = {role_of_pair(pair) for pair in settings.fields}
    is_there = any(name in keys for name in settings.keys_of("text"))
    if "text" in roles and (is_there or roles == {"text"}):
        return "text"
    return "sections"


def section_paths(settings: RenderSettings) -> frozenset[str]:
    """Return the paths of the texts of a record with title, summary and sections."""
    title, summary, sections, *items = map(settings.key_of, list(KEYS_OF_RECORDS)[:5])
    return frozenset((title, summary, *(f"{sections}[].{name}" for name in items)))


def _has_sections(settings: RenderSettings, sample: FieldSample) -> bool:
    """Return whether sections have the named key, or are empty and title and summary exist."""
    sections = settings.key_of("sections")
    if f"{sections}[].{settings.key_of('section_content')}" in sample.fields:
        return True
    wanted = {settings.key_of("title"), settings.key_of("summary"), sections}
    inner = f"{sections}["
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


def chats_in(settings: RenderSettings, sample: FieldSample) -> str:
    """Return what makes the first records chats or instructions; '' for others.

    Records whose field of text has nearly all text are neither.
    """
    fields = sample.weighed(settings.text_field)
    texts = _texts(sample, fields)
    if settings.text_field in texts and share(fields, {settings.text_field}) >= ENOUGH:
        return ""
    inner: dict[str, set[str]] = {}
    for path in fields:
        if item := _ITEM.fullmatch(path):
            inner.setdefault(item[1], set()).add(item[2])
    for name, keys in inner.items():
        speakers, spoken = keys.intersection(_SPEAKERS), keys.intersection(_SPOKEN)
        if speakers and spoken and name not in texts:
            return f"chats ({name}[].{min(speakers)}, {name}[].{min(spoken)})"
    asked, answered = (
        [key for key in keys if key in sample.string_keys] for keys in (_ASKED, _ANSWERED)
    )
    return f"questions with answers ({asked[0]}, {answered[0]})" if asked and answered else ""


def _strings(sample: FieldSample) -> list[str]:
    """Return the keys of strings that may be text, including short answers."""
    fields = sample.weighed()
    asked = (*_ASKED, *_ANSWERED)
    texts = _texts(sample, fields)
    return [name for name in sample.keys if name in texts or name in asked]


def _no_text(sample: FieldSample) -> str:
    """Return that no field holds text, what the fields are, and how to name one."""
    kinds = [f"{name} ({kind})" for name, kind in sample.kinds().items()]
    shown = ", ".join(kinds[:_MOST_KINDS])
    if len(kinds) > _MOST_KINDS:
        shown += f" and {plural(len(kinds) - _MOST_KINDS, 'other')}"
    strings = [name for name in sample.keys if name in sample.string_keys]
    longest = max(
        strings,
        key=lambda name: (sample.fields[name].text_bytes, sample.fields[name].n_bytes),
        default="",
    )
    advice = "leave these records out of the input"
    if longest and sample.fields[longest].n_bytes:
        option = shlex.quote(f"text={longest}")
        advice += f", or name one that is text, as in --renderer=text --fields={option}"
    return f"the records hold no text: expected a field of sentences, found {shown}: {advice}"


def _fields_found(fields: Mapping[str, FieldBytes]) -> str:
    total = sum(n.text_bytes for n in fields.values())
    texts = {path: n.text_bytes for path, n in fields.items() if n.text_bytes}
    rest = [path for path in fields if path not in texts]
    shares = f"found {listed_shares(texts, total)}" if texts else "found no text"
    labels = f"; without text {listed_shares(dict.fromkeys(rest, 0), 1)}" if rest else ""
    return f"the text is not in one field, {shares}{labels}"


def _fits_template(name: str) -> bool:
    """Return whether a format string can name a field."""
    return not set(name) & set("{}!:[")


def _in_turn(sample: FieldSample, fields: Mapping[str, FieldBytes], texts: Sequence[str]) -> str:
    """Return the option that takes the filled one of fields of which each record has one, or ''.

    Only if they hold nearly all text: `text` in some records, `content` in the others.
    """
    group: list[str] = []
    for name in sorted(texts, key=lambda name: -fields[name].text_bytes):
        if not any(sample.stand_together(name, other) for other in group):
            group.append(name)
    names = [name for name in texts if name in group and not set(name) & set("=,")]
    if len(names) < 2 or share(fields, names) < ENOUGH:
        return ""
    pairs = ",".join(f"text={name}" for name in names)
    return f"--renderer=text --fields={shlex.quote(pairs)}"


def _template(texts: Collection[str]) -> str:
    """Return the option `--template` for some fields, quoted for the shell."""
    kept = filter(_fits_template, texts)
    return "--template=" + shlex.quote("\\n".join("{" + name + "}" for name in kept))


def _keys_of_sections(
    settings: RenderSettings, texts: list[str], nested: list[str], fields: Mapping[str, FieldBytes]
) -> dict[str, str]:
    """Return the keys, by role, with which a renderer of sections reads a list of objects."""
    content = max(nested, key=lambda path: fields[path].text_bytes)
    match = _ITEM.fullmatch(content)
    name, inner = (match[1], match[2]) if match else (content, "")
    headings = [path for path in nested if path != content and path.startswith(f"{name}[].")]
    return {
        "title": next(iter(texts), settings.key_of("title")),
        "summary": next(iter(texts[1:]), settings.key_of("summary")),
        "sections": name,
        "section_title": headings[0].rpartition(".")[2] if headings else "title",
        "section_content": inner,
    }


def _sections(named: RenderSettings, sample: FieldSample, weighed: Mapping[str, FieldBytes]) -> str:
    """Return the options with which a renderer of sections reads the keys of `named`.

    The formula of encyclopedias would put a separator where a title or a heading is missing.
    """
    heading = f"{named.key_of('sections')}[].{named.key_of('section_title')}"
    has_both = named.key_of("title") in sample.string_keys and heading in weighed
    renderer = "sections" if has_both else "article"
    fields = f" --fields={shlex.quote(','.join(named.fields))}" if named.fields else ""
    return f"--renderer={renderer}{fields}"
