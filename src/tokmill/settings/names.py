"""Every setting of the schema: its value as plain data, and its name in each face.

The faces are option, variable, keyword and TOML key.

A message names other settings as options, with `=` before a value: `set --max-tokens=512`. That is
their neutral notation: the source reads as the line that most people see, and `in_python` writes it
for callers in Python. What a message quotes is left as it is.
"""

from __future__ import annotations

import dataclasses
import json
import os
import re
import shlex
import tomllib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from types import NoneType
from typing import Any, NamedTuple, get_args, get_type_hints

from tokmill.errors import TokmillError, UsageError
from tokmill.opening import open_regular
from tokmill.settings.schema import Config, Source

_OPTIONS = {
    "input.sources": "source",
    "tokenizer.path": "tokenizer",
    "output.dir": "output",
    "model.name": "model",
}
"""Settings that are named otherwise as options and keyword arguments, where there is no section."""


class Setting(NamedTuple):
    """A setting: where it stands in the schema, its type, and how it was declared."""

    section: str
    name: str
    kind: Any
    default: Any
    metadata: Mapping[str, Any]

    @property
    def key(self) -> str:
        """Return the key in a TOML file: `output.val_fraction`."""
        return f"{self.section}.{self.name}"

    @property
    def keyword(self) -> str:
        """Return the keyword argument: `val_fraction`."""
        return _OPTIONS.get(self.key, self.name)

    @property
    def option(self) -> str:
        """Return the option: `--val-fraction`."""
        return f"--{self.keyword.replace('_', '-')}"

    @property
    def variable(self) -> str:
        """Return the environment variable: `TOKMILL_VAL_FRACTION`.

        Where two sections have a keyword, it includes the section: `TOKMILL_SFT_TEMPLATE`.
        """
        words = (self.section, self.keyword) if self.is_shared else (self.keyword,)
        return "_".join(("tokmill", *words)).upper()

    @property
    def is_optional(self) -> bool:
        """Return whether the default stands for nothing, or for what tokmill decides.

        Python has None for that.
        """
        is_value = isinstance(self.default, bool) or self.metadata.get("zero_is_value", False)
        return not is_value and self.default in ("", 0, -1)

    def refuse_empty(self, value: object) -> None:
        """Raise `UsageError` for '', 0 or -1 in place of None, unless the help explains it."""
        is_plain = isinstance(value, str | int | float) and not isinstance(value, bool)
        if not (is_plain and self.is_optional and value == self.default):
            return
        word = "empty" if self.default == "" else self.default
        if f"{word}:" not in self.metadata["help"]:
            raise UsageError(
                f"expected a value, found {value!r}: leave it out, or give None", self.key
            )

    @property
    def is_shared(self) -> bool:
        """Return whether another section has a setting of the same keyword."""
        return _n_of_keyword()[self.keyword] > 1


@cache
def section_types() -> Mapping[str, type]:
    """Return the dataclass of each section of `Config`."""
    hints = get_type_hints(Config)
    return {
        section: next(kind for kind in get_args(hint) or (hint,) if kind is not NoneType)
        for section, hint in hints.items()
    }


@cache
def schema() -> Mapping[str, Mapping[str, Setting]]:
    """Return every setting, by section and name."""
    return {section: settings_of(section, kind) for section, kind in section_types().items()}


def settings_of(section: str, declared: type) -> dict[str, Setting]:
    """Return the settings that a dataclass declares, by name."""
    kinds = get_type_hints(declared)
    return {
        field.name: Setting(section, field.name, kinds[field.name], field.default, field.metadata)
        for field in dataclasses.fields(declared)
    }


def every_setting() -> tuple[Setting, ...]:
    """Return every setting, in the order of the schema."""
    return tuple(setting for settings in schema().values() for setting in settings.values())


def by_keyword(sections: Iterable[str]) -> dict[str, Setting]:
    """Return the settings of sections by keyword argument; the first section has a shared one.

    A key such as `model.name` in place of a section is that setting alone.
    """
    keywords: dict[str, Setting] = {}
    for name in sections:
        section, _, alone = name.partition(".")
        settings = schema()[section]
        for setting in [settings[alone]] if alone else settings.values():
            keywords.setdefault(setting.keyword, setting)
    return keywords


def of_source(section: str) -> tuple[str, ...]:
    """Return the settings of reading in a section: a source may have its own value of each."""
    settings = schema().get(section, {}).items()
    return tuple(name for name, setting in settings if setting.metadata.get("of_source"))


def output_settings(config: Config) -> dict[str, dict[str, Any]]:
    """Return the settings that decide the bytes of a dataset, by section, as plain values."""
    values = {
        section: {
            name: value
            for name, value in settings.items()
            if schema()[section][name].metadata["affects_output"]
        }
        for section, settings in plain(config).items()
    }
    return {section: kept for section, kept in values.items() if kept}


def plain(config: Config) -> dict[str, dict[str, Any]]:
    """Return every setting of the sections that are used, ready for JSON.

    A run of SFT renders by [sft], others by [render]. A setting `in_plan_if_set` that has its
    default is left out.
    """
    unused = () if config.sft is None else ("render",)
    sections = {name: getattr(config, name) for name in schema() if name not in unused}
    return {
        name: {
            key: plain_value(value)
            for key, setting in schema()[name].items()
            if (value := getattr(section, key)) != setting.default
            or not setting.metadata.get("in_plan_if_set")
        }
        for name, section in sections.items()
        if section is not None
    }


def not_default(
    values: Mapping[str, Mapping[str, Any]], sections: Iterable[str]
) -> dict[str, Mapping[str, Any]]:
    """Return the settings that differ from their defaults; a manifest has them all."""
    kept = {name: values[name] for name in sections if name in values}
    for name, section in kept.items():
        if isinstance(section, dict):
            defaults = {key: plain_value(own.default) for key, own in schema()[name].items()}
            kept[name] = {k: v for k, v in section.items() if k not in defaults or v != defaults[k]}
    return kept


def plain_value(value: Any) -> Any:
    """Return the value of a setting, ready for JSON."""
    if isinstance(value, Source):
        return {key: plain_value(item) for key, item in value.values().items()}
    return [plain_value(item) for item in value] if isinstance(value, tuple) else value


@cache
def _n_of_keyword() -> Counter[str]:
    return Counter(setting.keyword for setting in every_setting())


def find_setting(key: str) -> Setting | None:
    """Return the setting of a key such as `output.val_fraction`; None if there is none."""
    section, _, name = key.partition(".")
    return schema().get(section, {}).get(name)


def flag(section: str, name: str) -> str:
    """Return a setting's option: `--val-fraction`."""
    setting = find_setting(f"{section}.{name}")
    return f"--{name.replace('_', '-')}" if setting is None else setting.option


def in_options(error: TokmillError, words: Sequence[str] = ()) -> str:
    """Return the message of an error for the command line, which begins as the setting was given.

    `words`: of the command. A setting is an option, unless only a variable or the file of
    `--config` gives it.
    """
    key = error.setting if isinstance(error, UsageError) else ""
    if not key:
        return str(error)
    setting = find_setting(key)
    if setting is None:
        return f"--{key.rpartition('.')[2].replace('_', '-')}: {error.args[0]}"
    if setting.metadata.get("is_hidden"):
        return str(error)
    return f"{_as_given(setting, words)}: {error.args[0]}"


def _as_given(setting: Setting, words: Sequence[str]) -> str:
    """Return the name of a setting as it was given: an option, a variable, or a key of a file."""
    options = [word.partition("=")[0] for word in words]
    if setting.option in options:
        return setting.option
    if os.environ.get(setting.variable):
        return setting.variable
    if file := _value_of(words, "--config"):
        with (
            suppress(OSError, ValueError, TokmillError),
            open_regular(Path(file), follow_links=True) as content,
        ):
            section = tomllib.load(content).get(setting.section)
            if isinstance(section, dict) and setting.name in section:
                return f"{file}: {setting.key}"
    return setting.option


def _value_of(words: Sequence[str], option: str) -> str:
    """Return the value of an option among the words of a command; '' if it has none."""
    following = [*words[1:], ""]
    for i, word in enumerate(words):
        name, equals, value = word.partition("=")
        if name == option:
            return value if equals else following[i]
    return ""


@contextmanager
def keyword_errors() -> Iterator[None]:
    """Write the messages of errors for callers in Python: settings are keyword arguments."""
    try:
        yield
    except TokmillError as error:
        name_keywords(error)
        raise


def name_keywords(error: TokmillError) -> None:
    """Name settings in the message of an error as keyword arguments."""
    if isinstance(error, UsageError) and (key := error.setting):
        setting = find_setting(key)
        keyword = setting.keyword if setting else key.rpartition(".")[2]
        error.args, error.setting = (f"{keyword}: {error.args[0]}",), ""
    error.args = tuple(in_python(a) if isinstance(a, str) else a for a in error.args)


_OPTION = r"""(?<![\w-])--([a-z][a-z-]+)(?:=((?:'[^']*'|"[^"]*"|[^\s'"])+))?"""
_QUOTED = r"""(?<![\w=])(?:'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")(?!\w)"""
_NAMED = re.compile(f"{_OPTION}|{_QUOTED}")
"""An option with its value, or what a message quotes: words of a user, which stay."""


def in_python(message: str) -> str:
    """Return a message with keyword arguments in place of the options of settings.

    Example:
        >>> in_python("take one with --renderer=text --fields=text=abstract")
        'take one with renderer="text", fields={"text": "abstract"}'
    """
    settings = {setting.option: setting for setting in every_setting()}

    def written(named: re.Match[str]) -> str:
        if named[1] is None:
            return named[0]
        keyword, text = named[1].replace("-", "_"), named[2]
        if keyword == "overwrite":
            return "overwrite=True"
        if keyword == "allow_code" and text is not None:
            return f"allow_code={_json(text.split(','))}"
        setting = settings.get(f"--{named[1]}")
        if setting is None:
            return "config" if keyword == "config" else named[0]
        if setting.kind is bool:
            return f"{keyword}=True"
        if text is None:
            return keyword
        value = text.rstrip(",;:.)")
        end = text[len(value) :] + "," * message.startswith(" --", named.end())
        return f"{keyword}={_json(_value(setting, ''.join(shlex.split(value))))}{end}"

    return _NAMED.sub(written, message).replace("run the same command", "make the same call")


def in_toml(options: str) -> str:
    """Return options, each with its value, as the inside of a table of TOML."""
    settings = {setting.option: setting for setting in every_setting()}
    written: list[str] = []
    for word in shlex.split(options):
        option, _, text = word.partition("=")
        value = _value(settings[option], text)
        if isinstance(value, dict):
            pairs = ", ".join(f"{_toml_key(key)} = {_json(own)}" for key, own in value.items())
            written.append(f"{settings[option].name} = {{{pairs}}}")
        else:
            written.append(f"{settings[option].name} = {_json(value)}")
    return ", ".join(written)


def _value(setting: Setting, text: str) -> Any:
    """Return the value in an option's text; pairs of names as a dict."""
    value = from_text(setting, text)
    if not setting.metadata.get("is_mapping"):
        is_amount = "unit" in setting.metadata and value.isdecimal()
        return int(value) if is_amount else value
    pairs: dict[str, list[str]] = {}
    for name, _, own in (pair.partition("=") for pair in value):
        pairs.setdefault(name, []).append(own)
    return {name: own[0] if len(own) == 1 else own for name, own in pairs.items()}


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _toml_key(text: str) -> str:
    return text if re.fullmatch("[A-Za-z0-9_-]+", text) else _json(text)


_ESCAPED = ("text_separator", "template", "renderer", "csv_delimiter", "csv_escape")
_ESCAPES = {"\\n": "\n", "\\t": "\t", "\\r": "\r", "\\\\": "\\"}
_TRUE, _FALSE = ("1", "true", "t", "yes", "y", "on"), ("0", "false", "f", "no", "n", "off")


def from_text(setting: Setting, text: str) -> Any:
    r"""Return the value of a setting from the text of an option or a variable.

    Lists have commas between their items, unless the items may hold some. In some settings `\n`,
    `\t` and `\r` are escapes.

    Raises:
        UsageError: the text is neither true nor false, or no table of a source.
    """
    if setting.kind == tuple[str, ...]:
        if setting.metadata.get("keeps_commas"):
            return [text]
        return [item.strip() for item in text.split(",")]
    if setting.kind is bool:
        if text.lower() not in (*_TRUE, *_FALSE):
            raise UsageError(f"expected true or false, found {text!r}")
        return text.lower() in _TRUE
    if setting.kind is str:
        is_escaped = setting.name in _ESCAPED
        return re.sub(r"\\[ntr\\]", lambda m: _ESCAPES[m[0]], text) if is_escaped else text
    if "unit" in setting.metadata:
        return text
    if setting.kind == tuple[Source, ...]:
        return [_source_table(text)]
    with suppress(ValueError):  # other text is refused where values are checked
        return setting.kind(text)
    return text


def _source_table(text: str) -> dict[str, Any]:
    """Return a source, written as the inside of an inline table of TOML."""
    try:
        source: dict[str, Any] = tomllib.loads(f"source = {{{text}}}")["source"]
    except tomllib.TOMLDecodeError as error:
        reason = str(error).partition(" (at ")[0].lower()  # the place counts from our own start
        raise UsageError(
            f"expected the inside of a table of TOML, found {text!r} ({reason}): write it as in "
            """--source 'name = "web", paths = ["FILE"]'"""
        ) from None
    return source
