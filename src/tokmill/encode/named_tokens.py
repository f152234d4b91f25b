"""The tokens that have a name (eos, bos) and the chat template, from settings and other files."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tokmill.encode.tokenizer_files import read_file
from tokmill.errors import TokenizerError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

_LOOKS_LIKE_AN_END = re.compile(
    r"</s>|\[SEP\]|[<\[]\W*(eos|eod|eot|eom|eot_id|eom_id|end|im_end|return"
    r"|end\W?_?of\W?_?(text|turn|sentence|document))\W*[>\]]",
    re.IGNORECASE,
)
_NAMED = (
    "bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token"
)  # fmt: skip
_EOS_VARIABLE = re.compile(r"\beos_token\b")


@dataclass(frozen=True, slots=True)
class Token:
    """A token by id, with its string as the vocabulary writes it."""

    id: int
    content: str


@dataclass(frozen=True, slots=True)
class Companions:
    """What the files beside a tokenizer say: eos, who says it, and every chat template by name.

    `named`: the strings of tokens by what they are called there, such as `bos_token`.
    """

    eos: str | None
    eos_source: str
    chat_templates: Mapping[str, str]
    named: Mapping[str, str] = field(default_factory=dict)

    @property
    def chat_template(self) -> str | None:
        """Give the template that applies when none is asked for by name."""
        templates = self.chat_templates
        return templates.get("default") or next(iter(templates.values()), None)


def read_companions(folder: Path) -> Companions:
    """Read tokenizer_config.json, special_tokens_map.json and chat_template.jinja, where they are.

    Raises:
        TokenizerError: one of them is not what its name says.
        StorageError: one of them cannot be read.
    """
    config = _read_object(folder / "tokenizer_config.json")
    eos, source = None, ""
    named: dict[str, str] = {}
    for name in ("tokenizer_config.json", "special_tokens_map.json"):
        said = _read_object(folder / name)
        eos = eos or _content(said.get("eos_token"))
        source = source or (name if eos else "")
        found = {key: _content(said.get(key)) for key in _NAMED}
        named = {key: content for key, content in found.items() if content} | named
    return Companions(eos, source, _chat_templates(config.get("chat_template"), folder), named)


def find_token(text: str, ids: Mapping[str, int], *, where: str, option: str) -> Token:
    """Find the token that an option names, by its string or by its id in digits.

    Digits are always an id: a number's own token is no end or begin of anything.

    Raises:
        TokenizerError: the vocabulary has no such token.
    """
    if text.isascii() and text.isdigit():
        wanted = int(text)
        content = next((content for content, id_ in ids.items() if id_ == wanted), None)
        if content is None:
            raise TokenizerError(f"{where}: {option} names id {wanted}, which no token has")
        return Token(wanted, content)
    if text not in ids:
        raise TokenizerError(
            f"{where}: {option} names {text!r}, which is not in the vocabulary; {_offer(ids)}"
        )
    return Token(ids[text], text)


def find_eos(
    ids: Mapping[str, int],
    companions: Companions,
    model_eos: Token | None,
    *,
    where: str,
    of_turns: bool = False,
) -> Token:
    """Find the end-of-text token that the tokenizer's own files agree on.

    Args:
        ids: every token's id by its string.
        companions: what the files beside it say.
        model_eos: what the tokenizer's own file says (a SentencePiece model does).
        where: names the tokenizer in messages.
        of_turns: whether it may be what ends turns too, as it may where turns are all there is.

    Raises:
        TokenizerError: no file names one, two files name two, or the chat template ends turns
            with it, so that it is ambiguous what an end of text is.
    """
    eos = model_eos
    if companions.eos is not None:
        if companions.eos not in ids:
            raise TokenizerError(
                f"{where}: {companions.eos_source} names eos {companions.eos!r}, which is not in "
                f"the vocabulary; choose with --eos-token; {_offer(ids)}"
            )
        eos = Token(ids[companions.eos], companions.eos)
    if eos is None:
        raise TokenizerError(
            f"{where}: no file names an end-of-text token; choose with --eos-token; {_offer(ids)}"
        )
    if model_eos is not None and eos != model_eos:
        raise TokenizerError(
            f"{where}: the model's eos is {_shown(model_eos)}, {companions.eos_source} names "
            f"{_shown(eos)}; choose with --eos-token; {_offer(ids, model_eos, eos)}"
        )
    if not of_turns and _ends_turns(eos, companions):
        raise TokenizerError(
            f"{where}: eos is ambiguous: the chat template uses {eos.content!r} itself, as an end "
            f"of turn; choose with --eos-token; {_offer(ids, eos)}"
        )
    return eos


def _ends_turns(eos: Token, companions: Companions) -> bool:
    templates = companions.chat_templates.values()
    return any(eos.content in text or _EOS_VARIABLE.search(text) for text in templates)


def _offer(ids: Mapping[str, int], *also: Token) -> str:
    """List the tokens that look like an end of text, and `also`, by id."""
    alike = {Token(id_, text) for text, id_ in ids.items() if _LOOKS_LIKE_AN_END.fullmatch(text)}
    tokens = sorted(alike.union(also), key=lambda token: token.id)
    if not tokens:
        return "no token looks like one"
    return "candidates: " + ", ".join(_shown(token) for token in tokens)


def _shown(token: Token) -> str:
    return f"id {token.id} {token.content}"


def _chat_templates(value: Any, folder: Path) -> dict[str, str]:
    """Give templates by name; a file of its own wins over the one in tokenizer_config.json."""
    templates: dict[str, str] = {}
    if isinstance(value, str):
        templates["default"] = value
    elif value is not None:
        try:
            templates = {str(entry["name"]): str(entry["template"]) for entry in value}
        except (TypeError, KeyError):
            raise TokenizerError(
                f"{folder / 'tokenizer_config.json'}: chat_template: expected a string or a list "
                f"of name and template, found {type(value).__name__}"
            ) from None
    file = folder / "chat_template.jinja"
    if file.exists():
        templates["default"] = read_file(file).decode("utf-8", errors="replace")
    return templates


def _content(value: Any) -> str | None:
    """Give the string of a token written as a string or as an object."""
    if isinstance(value, dict):
        value = value.get("content")
    return value if isinstance(value, str) and value else None


def _read_object(path: Path) -> dict[str, Any]:
    if not path.exists():
        return {}
    try:
        value = json.loads(read_file(path))
    except (ValueError, RecursionError) as error:
        raise TokenizerError(f"{path}: not valid JSON: {error}") from None
    if not isinstance(value, dict):
        raise TokenizerError(f"{path}: expected an object, found {type(value).__name__}")
    return value
