"""A tokenizer's files: its own, found by path or Hub name, and what the files beside it say."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from tokmill.errors import StorageError, TokenizerError, UsageError
from tokmill.opening import LFS_ADVICE, LFS_POINTER, begins_with, open_named, read_named

if TYPE_CHECKING:
    from collections.abc import Mapping

_HUB_NAME = re.compile(r"[A-Za-z0-9][\w.-]*(/[A-Za-z0-9][\w.-]*)?", re.ASCII)
"""With or without an organisation: `gpt2` is a name too."""

_FILE_SUFFIXES = (".json", ".model", ".tiktoken")
_WANTED = ("tokenizer.json", "tokenizer.model", "*.model", "*.tiktoken")
"""In search order."""

_SLOW = ("vocab.json", "merges.txt", "vocab.txt")
"""Files that only a class of transformers reads, see `conversion`."""

_MOVED = re.compile(
    "albert|barthez|bartpho|camembert|fnet|m2m100|marian|mbart|mbart50|mluke|nllb|pegasus|plbart"
    "|seamlessm4t|speech2text|xglm|xlmroberta|xlnet"
)
"""Classes and types of models whose ids are not those of their SentencePiece model: fairseq's begin
elsewhere, and others change the text before. transformers 5 converts these models with other ids
than theirs."""

_MOST_NAMED = 5

_COMPANIONS = ("tokenizer_config.json", "special_tokens_map.json", "chat_template.jinja")

_MOST_OBJECT_BYTES, _MOST_TEMPLATE_BYTES = 32 << 20, 4 << 20
"""Of a JSON file, which takes up to twenty times as much memory, and of chat_template.jinja. The
largest tokenizer_config.json of a model, with 65,000 tokens for sounds, has 12 MB."""

_LARGEST_ID = 1 << 24

_NAMED = (
    "bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token"
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Token:
    """A token by id, with its string as the vocabulary writes it."""

    id: int
    content: str


class AddedToken(NamedTuple):
    """An added token as the library has it.

    `lstrip`, `rstrip`: a match includes the white space before it, after it. `normalized`: matched
    in normalized text.
    """

    id: int
    content: str
    special: bool
    lstrip: bool = False
    rstrip: bool = False
    single_word: bool = False
    normalized: bool = False


@dataclass(frozen=True, slots=True)
class Companions:
    """Contents of the files beside a tokenizer.

    `named`: strings of tokens by key, such as `eos_token`; `eos_source`: the file that names eos,
    or ''. `chat_templates`: by name.
    """

    named: Mapping[str, str] = field(default_factory=dict)
    eos_source: str = ""
    chat_templates: Mapping[str, str] = field(default_factory=dict)

    @property
    def chat_template(self) -> str | None:
        """Return the template for when no name is given."""
        templates = self.chat_templates
        return templates.get("default") or next(iter(templates.values()), None)


def find_tokenizer_file(path: str) -> Path:
    """Return the file that a tokenizer setting names; fetch it from the Hub or its cache if needed.

    A directory with only files that transformers reads is returned itself.

    Raises:
        UsageError: there is no such path, and it does not look like a Hub name.
        TokenizerError: a directory or Hub repository has no tokenizer, or several.
        StorageError: the path cannot be read.
    """
    if not path:
        raise UsageError("no tokenizer is named; set --tokenizer to a file, a directory or a name")
    local = Path(path)
    try:
        if local.is_dir():
            return _find_in_directory(local, where=path)
        if local.exists():
            return local
    except OSError as error:
        raise StorageError(f"{path}: cannot be read: {error.strerror}") from None
    if _HUB_NAME.fullmatch(path) is None or path.endswith(_FILE_SUFFIXES):
        raise UsageError(
            f"{path}: no such tokenizer file or directory, and not a name on the Hugging Face Hub, "
            f"such as gpt2 or Qwen/Qwen2.5-0.5B{_alike(local)}"
        )
    return _find_in_directory(_fetch(path), where=path)


def read_file(path: Path) -> bytes:
    """Return the bytes of a file.

    Raises:
        UsageError: it is a pipe, a socket or a device.
        TokenizerError: it is a pointer of Git LFS.
        StorageError: it cannot be read.
    """
    try:
        data = read_named(path)
    except OSError as error:
        raise StorageError(f"{path}: cannot be read: {error.strerror}") from None
    check_no_pointer(path)
    return data


def check_no_pointer(path: Path) -> None:
    """Raise `TokenizerError` if Git LFS has left a pointer in place of a file."""
    if begins_with(path.resolve(), LFS_POINTER):
        raise TokenizerError(f"{path}: {': '.join(LFS_ADVICE)}")


def _read_companion(path: Path, most_bytes: int) -> bytes:
    """Return the bytes of a file beside a tokenizer; raises `TokenizerError` if it has too many."""
    if path.is_file() and path.stat().st_size > most_bytes:
        raise TokenizerError(f"{path}: expected at most {most_bytes >> 20} MiB")
    return read_file(path)


def read_companions(folder: Path) -> Companions:
    """Read tokenizer_config.json, special_tokens_map.json and chat_template.jinja, if they exist.

    Raises:
        TokenizerError: one of them has unexpected content.
        StorageError: one of them cannot be read.
    """
    named: dict[str, str] = {}
    eos_source = ""
    config, special = (read_object(folder / name) for name in _COMPANIONS[:2])
    for name, values in zip(_COMPANIONS, (config, special), strict=False):
        tokens = {key: content for key in _NAMED if (content := _content(values.get(key)))}
        eos_source = eos_source or (name if "eos_token" in tokens else "")
        named = tokens | named
    return Companions(named, eos_source, _chat_templates(config.get("chat_template"), folder))


def read_added_tokens(folder: Path) -> dict[int, tuple[str, bool]]:
    """Return the added tokens of tokenizer_config.json by id: string, and whether it is special.

    Raises:
        TokenizerError: the file has unexpected content.
    """
    path = folder / _COMPANIONS[0]
    entries = read_object(path).get("added_tokens_decoder") or {}
    try:
        tokens = {
            int(id_): (str(entry["content"]), bool(entry.get("special", False)))
            for id_, entry in entries.items()
        }
    except (TypeError, KeyError, ValueError, AttributeError):
        raise TokenizerError(
            f"{path}: added_tokens_decoder: expected an object of tokens by id"
        ) from None
    if len({content for content, _ in tokens.values()}) < len(tokens):
        raise TokenizerError(f"{path}: added_tokens_decoder: two ids have one string")
    if tokens and not 0 <= min(tokens) <= max(tokens) <= _LARGEST_ID:
        raise TokenizerError(f"{path}: added_tokens_decoder: expected ids below {_LARGEST_ID:,}")
    return tokens


def code_beside(folder: Path) -> str:
    """Return the name of the Python file of a model's own tokenizer, which is never run, or ''."""
    return next((path.name for path in sorted(folder.glob("tokenization*.py"))), "")


def _find_in_directory(directory: Path, *, where: str) -> Path:
    """Return the tokenizer of a directory; raises `TokenizerError` if there is none or several."""
    for pattern in _WANTED:
        matching = sorted(directory.glob(pattern))
        if len(matching) > 1:
            names = ", ".join(file.name for file in matching)
            raise TokenizerError(f"{where}: several tokenizers here ({names}): name one")
        if matching:
            _check_ids_kept(matching[0], where=where)
            return matching[0]
    if any((directory / name).is_file() for name in _SLOW):
        return directory
    searched = f"{where}: no tokenizer here; looked for {', '.join((*_WANTED, *_SLOW))}"
    raise TokenizerError(searched + _advice_for(directory))


def _check_ids_kept(model: Path, *, where: str) -> None:
    """Raise `TokenizerError` if the class named beside a SentencePiece model moves its ids."""
    name = named_class(model.parent) if model.suffix == ".model" else ""
    if _MOVED.fullmatch(re.sub(r"[^a-z0-9]|tokenizer|fast", "", name.lower())):
        raise TokenizerError(
            f"{where}: {name} of transformers gives other ids than {model.name}: put the model's "
            f"tokenizer.json there, or name {model} to have the ids of SentencePiece"
        )


def named_class(folder: Path) -> str:
    """Return the class of transformers, or the type of model, that a file here names, or ''."""
    for file, key in (("tokenizer_config.json", "tokenizer_class"), ("config.json", "model_type")):
        value = read_object(folder / file).get(key)
        if isinstance(value, str) and value:
            return value
    return ""


def advice_instead(path: Path) -> str:
    """Return advice for a file that is no tokenizer: what to name instead, or ''."""
    if path.is_dir():
        return ""
    if other := other_kind(path):
        return f"; {other}"
    better = [name for name in ("tokenizer.json", "tokenizer.model") if name != path.name]
    present = next((name for name in better if (path.parent / name).is_file()), "")
    if present:
        return f"; did you mean {path.parent / present}?"
    if path.name in _SLOW:
        return f"; name its directory, {path.parent}, which is read with transformers"
    if path.suffix in _FILE_SUFFIXES:
        return ""
    return "; expected a tokenizer.json, a SentencePiece .model or a tiktoken rank file"


_PICKLES = (b"\x80\x02", b"\x80\x03", b"\x80\x04", b"\x80\x05")
"""First bytes of a pickle of Python 3; those of older ones are told by their name."""

_TEKKEN = re.compile(rb'"default_(vocab_size|num_special_tokens)"|"token_bytes"')


def other_kind(path: Path) -> str:
    """Return what a file is that is no tokenizer of a known kind, and what to do, or ''.

    A pickle can run code, so none is ever opened: its kind is told by its first bytes.
    """
    try:
        with open_named(path) as file:
            head = file.read(1 << 16)
    except (OSError, UsageError):
        return ""
    if head.startswith(_PICKLES) or path.suffix in (".pkl", ".pickle"):
        what = "a pickle, which can run code and is not read"
        if path.name == "meta.pkl":
            return f"{what}; of nanoGPT's table of characters, see docs/tokenizers.md"
        return f"{what}; with the code that wrote it, save a tokenizer.json or a tiktoken file"
    if head.startswith(b"PK\3\4"):
        return "a zip archive, such as of torch.save, which can run code and is not read"
    if path.name == "tekken.json" or (head.lstrip()[:1] == b"{" and _TEKKEN.search(head)):
        return (
            "a Tekken vocabulary of mistral-common, which is not read: name the tokenizer.json of "
            "the same model"
        )
    return ""


_OTHERS = ("tekken.json", "*.pkl", "*.pickle")


def _advice_for(directory: Path) -> str:
    """Return how to get a tokenizer out of a directory's files, or ''."""
    for pattern in _OTHERS:
        for path in sorted(directory.glob(pattern)):
            return f"; {path.name} is {other_kind(path)}"
    inside = sorted(path.parent.name for path in directory.glob("*/tokenizer.*[nl]"))
    if inside:
        named = ", ".join(dict.fromkeys(inside[:_MOST_NAMED])) + ", …" * (len(inside) > _MOST_NAMED)
        return f"; name one of its directories: {named}"
    if (directory / "config.json").is_file():
        return "; put the model's tokenizer.json and tokenizer_config.json there"
    return ""


def _fetch(name: str) -> Path:
    """Return a local copy of the tokenizer files of a Hub repository, all of one commit.

    Raises:
        TokenizerError: the Hub refuses, or it cannot be reached and the cache lacks a file.
    """
    here = f"{name}: no such file or directory here"
    try:
        from huggingface_hub import snapshot_download
    except ImportError:
        raise TokenizerError(
            f"{here}; to look for it on the Hugging Face Hub, install tokmill[hub]"
            f"{_alike(Path(name))}"
        ) from None
    try:
        folder = Path(snapshot_download(name, allow_patterns=[*_WANTED, *_COMPANIONS]))
        if not any(file for pattern in _WANTED for file in folder.glob(pattern)):
            wanted = [*_SLOW, "added_tokens.json", "config.json", *_COMPANIONS]
            folder = Path(snapshot_download(name, allow_patterns=wanted))
        return folder
    except Exception as error:  # the Hub client raises its own, its HTTP library's and OSError
        raise TokenizerError(f"{here}, and {_refusal(error)}{_alike(Path(name))}") from None


_REFUSALS = {
    "GatedRepoError": "the Hugging Face Hub requires its licence to be accepted: accept it there, "
    "then log in (hf auth login, or HF_TOKEN)",
    "RepositoryNotFoundError": "the Hugging Face Hub has no public model of this name",
    "LocalEntryNotFoundError": "the Hugging Face Hub cannot be reached, or HF_HUB_OFFLINE is set, "
    "and its cache has no such model",
}
"""One line for each error class of the Hub's client, whose own messages are paragraphs."""


def _refusal(error: Exception) -> str:
    for kind in type(error).__mro__:
        if kind.__name__ in _REFUSALS:
            return _REFUSALS[kind.__name__]
    reason = next(iter(str(error).splitlines()), "") or type(error).__name__
    return f"the Hugging Face Hub refused: {reason.rstrip('.')}"


def _alike(path: Path) -> str:
    """Return a question with a similar name from the same directory, or ''."""
    try:
        names = [entry.name for entry in path.parent.iterdir() if not entry.name.startswith(".")]
    except OSError:
        return ""
    close = get_close_matches(path.name, names, n=1, cutoff=0.75)
    return f"; did you mean {path.parent / close[0]}?" if close else ""


def _chat_templates(value: Any, folder: Path) -> dict[str, str]:
    """Return templates by name; chat_template.jinja replaces the default of the config."""
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
        content = _read_companion(file, _MOST_TEMPLATE_BYTES)
        templates["default"] = content.decode("utf-8", errors="replace")
    return templates


def _content(value: Any) -> str | None:
    """Return the string of a token, which is written as a string or as an object."""
    if isinstance(value, dict):
        value = value.get("content")
    return value if isinstance(value, str) and value else None


def read_object(path: Path) -> dict[str, Any]:
    """Return the object in a JSON file; empty if there is no such file."""
    if not path.exists():
        return {}
    try:
        value = json.loads(_read_companion(path, _MOST_OBJECT_BYTES))
    except (ValueError, RecursionError) as error:
        raise TokenizerError(f"{path}: not valid JSON: {error}") from None
    if not isinstance(value, dict):
        raise TokenizerError(f"{path}: expected an object, found {type(value).__name__}")
    return value
