"""The types of all keyword arguments, from the schema: src/tokmill/settings/arguments.pyi."""

from __future__ import annotations

import dataclasses
import textwrap
from collections.abc import Collection, Mapping
from typing import Any

from tokmill.mixing.settings import MixSettings
from tokmill.settings.names import Setting, by_keyword, every_setting, schema
from tokmill.settings.schema import ENCODE_SETTINGS, READ_SETTINGS
from tokmill.settings.signature import IN_SIGNATURE_OF_MIX, IN_SIGNATURES, type_text
from tokmill.trainers.options import ExportOptions

_HEAD = '''\
"""Keyword arguments of the Python functions; written by `python -m bench.pages`.

An amount is a number, or text such as `"4MiB"`, `"32k"` or `"300B"`.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypedDict

from tokmill.settings.schema import Source

Amount = int | str
Names = Sequence[str]
Pairs = Mapping[str, str | Sequence[str]] | Sequence[str]
'''
_INDENTED: Any = {
    "initial_indent": "    ", "subsequent_indent": "    ", "break_long_words": False,
}  # fmt: skip
_CLASSES = {
    # class: (its bases, what it is for)
    "_RunOfBoth": (
        "_Input _Tokenizer _Output _Limits _Run _ForTheBill", "What both recipes share."
    ),
    "PretrainArguments": ("_RunOfBoth _Render", "Settings of `tokmill.pretrain`."),
    "SftArguments": ("_RunOfBoth _Sft", "Settings of `tokmill.sft`."),
    "PlanArguments": ("_RunOfBoth _Render _Sft", "Settings of `tokmill.plan`: of one recipe."),
    "TrainingArguments": (
        "_Model _Training", "Settings of `tokmill.bill.training`, `host` and `disk`."
    ),
    "InferenceArguments": ("_Model _Inference", "Settings of `tokmill.bill.inference`."),
    "BillArguments": (
        "_Model _Training _Inference", "Settings of `tokmill.bill.of` and `Dataset.bill`."
    ),
}  # fmt: skip


def stub() -> str:
    """Return the text of the stub: a class for each section, and one for each function."""
    parts = [_HEAD]
    for section, settings in schema().items():
        parts.append(_class(f"_{section.title()}", f"Settings of section [{section}].", settings))
    bill = {"model": schema()["model"]["name"], "gpu": schema()["training"]["gpu"]}
    parts.append(_class("_ForTheBill", "The model and the GPU of the bill.", bill, ()))
    for name, (bases, text) in _CLASSES.items():
        line = f"class {name}({', '.join(bases.split())}, total=False):"
        parts.append(f'{line}\n    """{text}"""\n')
    for name, text, keys in (
        ("ReadArguments", "Settings of `tokmill.read`.", READ_SETTINGS),
        ("EncodeArguments", "Settings of `tokmill.encode` and `tokmill.Encoder`.", ENCODE_SETTINGS),
    ):
        parts.append(_class(name, text, by_keyword(keys)))
    of_source = {s.key: s for s in every_setting() if s.metadata.get("of_source")}
    parts.append(_class("SourceArguments", "Settings of a `tokmill.Source`.", of_source))
    exports, mixes = (
        {
            f.name: Setting(section, f.name, type(f.default), f.default, f.metadata)
            for f in dataclasses.fields(declared)
        }
        for section, declared in (("export", ExportOptions), ("mix", MixSettings))
    )
    parts.append(_class("ExportArguments", "Options of `Dataset.export`.", exports))
    parts.append(_class("MixArguments", "Settings of `tokmill.mix`.", mixes, IN_SIGNATURE_OF_MIX))
    return "\n".join(parts)


def _class(
    name: str,
    text: str,
    settings: Mapping[str, Setting],
    left_out: Collection[str] = IN_SIGNATURES,
) -> str:
    """Return a class with an annotation and a docstring for each setting."""
    lines = [f"class {name}(TypedDict, total=False):", f'    """{text}"""', ""]
    members = {s.keyword: s for s in settings.values() if s.key not in left_out}
    for keyword, setting in members.items():
        meaning = setting.metadata["help"].replace("\\", "\\\\")
        space = " " if meaning.endswith('"') else ""
        wrapped = textwrap.wrap(f'"""{meaning}{space}"""', 96, **_INDENTED)
        lines += [f"    {keyword}: {type_text(setting)}", *wrapped]
    return "\n".join(lines) + "\n"
