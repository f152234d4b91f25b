"""Finds the token that ends a document: named by the files, the family's, or the only candidate."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tokmill.errors import TokenizerError
from tokmill.tokenizer.files import Token

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from tokmill.tokenizer.files import Companions

_ENDS_TEXT = re.compile(
    r"</s>|\[SEP\]|[<\[]\W*(eos(_token)?|eod|end\W?_?of\W?_?(text|sentence|document))\W*[>\]]",
    re.IGNORECASE,
)
_ENDS_TURN = re.compile(
    r"[<\[]\W*(eot|eom|eot_id|eom_id|end|im_end|return|end\W?_?of\W?_?turn(_token)?)\W*[>\]]",
    re.IGNORECASE,
)
_BEGINS = re.compile(
    r"<s>|\[CLS\]|[<\[]\W*(bos(_token)?|begin\W?_?of\W?_?(text|sentence|document)|startoftext)\W*[>\]]",
    re.IGNORECASE,
)
_OPENS = ("<", "[")
"""The first character of both patterns: most of 150,000 tokens have another."""

_EOS_VARIABLE = re.compile(r"\beos_token\b")


@dataclass(frozen=True, slots=True)
class _Family:
    """A family of models, recognized by its eos and some ids, and its end of a document."""

    name: str
    eos: str
    marks: Mapping[str, int]
    n_ids: int = 0


_FAMILIES = (
    _Family("minimind", "<|im_end|>", {"<|endoftext|>": 0, "<|im_end|>": 2}, n_ids=6400),
    _Family("SmolLM 2", "<|endoftext|>", {"<|endoftext|>": 0, "<|im_end|>": 2, "<repo_name>": 3}),
    _Family("Qwen", "<|endoftext|>", {"<|endoftext|>": 151643, "<|im_end|>": 151645}),
    _Family("Qwen 3.5", "<|endoftext|>", {"<|endoftext|>": 248044, "<|im_end|>": 248046}),
    _Family("SmolLM 3", "<|end_of_text|>", {"<|end_of_text|>": 128001, "<|im_end|>": 128012}),
    _Family("Llama 3", "<|end_of_text|>", {"<|end_of_text|>": 128001, "<|eot_id|>": 128009}),
    _Family("Llama 4", "<|end_of_text|>", {"<|end_of_text|>": 200001, "<|eot|>": 200008}),
    _Family("gpt-oss", "<|endoftext|>", {"<|endoftext|>": 199999, "<|return|>": 200002}),
    _Family("Phi 3", "<|endoftext|>", {"<|endoftext|>": 32000, "<|end|>": 32007}),
    _Family("Phi 4 mini", "<|endoftext|>", {"<|endoftext|>": 199999, "<|end|>": 200020}),
    _Family("Phi 4 (and OLMo 2)", "<|endoftext|>", {"<|endoftext|>": 100257, "<|im_end|>": 100265}),
    _Family("Yi", "<|endoftext|>", {"<|endoftext|>": 2, "<|im_end|>": 7}),
    _Family("InternLM 2", "</s>", {"</s>": 2, "<|im_end|>": 92542}),
    _Family("Gemma", "<eos>", {"<eos>": 1, "<end_of_turn>": 107}),
    _Family("Gemma 3", "<eos>", {"<eos>": 1, "<end_of_turn>": 106}),
    _Family("DeepSeek", "<｜end▁of▁sentence｜>", {}),
)
"""Vocabularies with several tokens that end something, and the one for documents of pretraining.

minimind: its pretraining puts `<|im_start|>` and `<|im_end|>` around every text. The others: eos
in the tokenizers of the base models.
"""


def ends_something(text: str) -> bool:
    """Return whether a token looks by its string like the end of a text or of a turn."""
    return bool(_ENDS_TEXT.fullmatch(text) or _ENDS_TURN.fullmatch(text))


def find_token(text: str, ids: Mapping[str, int], *, where: str, option: str) -> Token:
    """Return the token that an option names, by its string or by its id.

    Digits are always an id: the token of a number never ends or begins a document.

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
        alike = _candidates(ids, ()) if option == "--eos-token" else _beginnings(ids)
        raise TokenizerError(
            f"{where}: {option} names {text!r}, which is not in the vocabulary; {_list_of(alike)}"
        )
    return Token(ids[text], text)


def find_eos(
    ids: Mapping[str, int],
    companions: Companions,
    model_eos: Token | None,
    *,
    where: str,
    special: Collection[int] = (),
    of_turns: bool = False,
) -> tuple[Token, str]:
    """Return the end-of-text token: named by the tokenizer's files, the family's, or the only one.

    With it comes a note that gives the reason if no file is explicit about it, or ''.

    `ids`: the id of every token by its string. `model_eos`: eos in the tokenizer's own file (only a
    SentencePiece model has one). `where`: name of the tokenizer in messages. `special`: ids of
    control tokens; if one is a candidate, only control tokens are. `of_turns`: whether it may also
    end turns, as in SFT.

    Raises:
        TokenizerError: two files name different ones; or, in no known family: no file names one and
            there is no single candidate, or it ends the turns of chats.
    """
    named = _named(ids, companions, model_eos, where=where, special=special)
    if named is not None and of_turns:
        return named, ""
    candidates = _candidates(ids, special, *([named] if named else []))
    of_text = _of_text(candidates)
    templates = companions.chat_templates.values()
    if named is None:
        reason = "no file names an end-of-text token"
    elif any(named.content in text or _EOS_VARIABLE.search(text) for text in templates):
        reason = f"the chat template uses {named.content!r} itself, as an end of turn"
    elif _ENDS_TURN.fullmatch(named.content) and of_text:
        reason = f"by its name, the configured {named.content!r} ends the turns of a chat"
    else:
        return named, ""
    if named is None and len(candidates) == 1 == len(of_text):  # an end of turn does not count
        taken = f"taken: {_shown(of_text[0])}, the only candidate (--eos-token: another)"
        return of_text[0], f"{where}: {reason}; {taken}"
    if named is not None and candidates == [named] == of_text:
        return named, f"{where}: eos is {_shown(named)}; it ends the turns of chats too"
    if (family := _family(ids)) is not None:
        token = Token(ids[family.eos], family.eos)
        taken = f"taken: {_shown(token)}, with which {family.name} ends documents of pretraining"
        return token, f"{where}: {reason}; {taken} (--eos-token: another)"
    problem = reason if named is None else f"eos is ambiguous: {reason}"
    raise TokenizerError(f"{where}: {problem}; {_advice(ids, candidates)}")


def _named(
    ids: Mapping[str, int],
    companions: Companions,
    model_eos: Token | None,
    *,
    where: str,
    special: Collection[int],
) -> Token | None:
    """Return the token that the files name, None if no file does."""
    content, source = companions.named.get("eos_token"), companions.eos_source
    if content is None:
        return model_eos
    if content not in ids:
        raise TokenizerError(
            f"{where}: {source} names eos {content!r}, which is not in the vocabulary; "
            f"{_advice(ids, _candidates(ids, special))}"
        )
    eos = Token(ids[content], content)
    if model_eos is not None and eos != model_eos:
        candidates = _candidates(ids, special, model_eos, eos)
        raise TokenizerError(
            f"{where}: the model's eos is {_shown(model_eos)}, {source} names {_shown(eos)}; "
            f"{_advice(ids, candidates)}"
        )
    return eos


def _candidates(ids: Mapping[str, int], special: Collection[int], *also: Token) -> list[Token]:
    """Return the tokens that look like the end of something, and `also`, in the order of ids.

    If a control token does, ordinary tokens are left out, such as the `</s>` of Qwen.
    """
    alike = {
        Token(id_, text) for text, id_ in ids.items() if text[:1] in _OPENS and ends_something(text)
    }
    control = {token for token in alike if token.id in special}
    return sorted((control or alike).union(also), key=lambda token: token.id)


def _beginnings(ids: Mapping[str, int]) -> list[Token]:
    """Return the tokens that look like the beginning of a text, in the order of ids."""
    found = [Token(id_, text) for text, id_ in ids.items() if _BEGINS.fullmatch(text)]
    return sorted(found, key=lambda token: token.id)


def _of_text(tokens: Sequence[Token]) -> list[Token]:
    return [token for token in tokens if _ENDS_TEXT.fullmatch(token.content)]


def _advice(ids: Mapping[str, int], candidates: Sequence[Token]) -> str:
    """Return advice: the candidate that ends documents, by family or by name, and a list of all.

    The tokens that end turns are named too, as a warning.
    """
    family, of_text = _family(ids), _of_text(candidates)
    if family is not None:
        chosen = family.eos
        reason = f"{family.name} ends documents of pretraining with {chosen}"
    elif len(of_text) == 1:
        chosen = of_text[0].content
        reason = f"by the names, documents end with {chosen}"
    else:
        return f"choose with --eos-token; {_list_of(candidates)}"
    turns = [token.content for token in candidates if _ENDS_TURN.fullmatch(token.content)]
    if others := " or ".join(content for content in turns if content != chosen):
        reason += f", and turns of chats with {others}"
    return f"{reason}: choose --eos-token={shlex.quote(chosen)}; {_list_of(candidates)}"


def _family(ids: Mapping[str, int]) -> _Family | None:
    for family in _FAMILIES:
        same = all(ids.get(content) == id_ for content, id_ in family.marks.items())
        if same and family.eos in ids and family.n_ids in (0, len(ids)):
            return family
    return None


def _list_of(candidates: Sequence[Token]) -> str:
    if not candidates:
        return "no token looks like one"
    return "candidates: " + ", ".join(map(_shown, candidates))


def _shown(token: Token) -> str:
    return f"id {token.id} {token.content}"
