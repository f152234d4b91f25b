"""Tokenizers that only transformers reads: converted by it, and held against its own ids.

Of `vocab.json` and `merges.txt`, or of `vocab.txt`, the class of transformers decides which ids a
text has: GPT2Tokenizer and Qwen2Tokenizer split the same text differently. So a file beside them
has to name it.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from tokmill.errors import TokenizerError
from tokmill.tokenizer.files import check_no_pointer, named_class
from tokmill.tokenizer.hostile_texts import hostile_texts
from tokmill.tokenizer.tokenizer_json import UNUSED_PARTS
from tokmill.words import json_text

if TYPE_CHECKING:
    from pathlib import Path

_TOKENS = 1 << 13
"""Tokens of the vocabulary whose texts are compared."""

_OF_A_FILE = ("TokenizersBackend", "PreTrainedTokenizerFast")
"""What transformers takes for a class that it does not know; a tokenizer.json says all of it."""


def convert(folder: Path, *, where: str) -> str:
    """Return the text of a tokenizer.json with the ids that transformers gives.

    `where` names the folder in messages.

    Raises:
        TokenizerError: no file names the class, transformers is not installed or refuses, the class
            has no equivalent tokenizer.json, or the ids differ.
    """
    name = named_class(folder)
    if not name:
        raise TokenizerError(
            f"{where}: no tokenizer.json here, and no file names the class of transformers that "
            "reads the others: write it into tokenizer_config.json, such as "
            '{"tokenizer_class": "GPT2Tokenizer"}'
        )
    for path in folder.iterdir():  # transformers opens them, and would wait for a pipe
        check_no_pointer(path)
        if path.exists() and not (path.is_file() or path.is_dir()):
            raise TokenizerError(
                f"{path}: expected a regular file, found a pipe, a socket or a device"
            )
    converted = _load(folder, name, where=where)
    if not converted.is_fast or type(converted).__name__ in _OF_A_FILE:
        raise TokenizerError(
            f"{where}: {name} runs in Python code only: no tokenizer.json can be made of its files"
        )
    content = json.loads(converted.backend_tokenizer.to_str())
    text = json.dumps(content | dict.fromkeys(UNUSED_PARTS), ensure_ascii=False)
    _compare(text, converted, where=where)
    return text


def _load(folder: Path, name: str, *, where: str) -> Any:
    try:
        from transformers import AutoTokenizer, logging
    except ImportError:
        raise TokenizerError(
            f"{where}: no tokenizer.json here; to make one of {name}'s files, install "
            "tokmill[transformers]"
        ) from None
    verbosity = logging.get_verbosity()
    logging.set_verbosity_error()
    try:
        return AutoTokenizer.from_pretrained(
            str(folder), local_files_only=True, trust_remote_code=False
        )
    except Exception as error:  # of any class; messages are paragraphs
        raise TokenizerError(
            f"{where}: transformers cannot load {name} from these files: {_first_line(error)}"
        ) from None
    finally:
        logging.set_verbosity(verbosity)


def _compare(text: str, reference: Any, *, where: str) -> None:
    """Raise `TokenizerError` for the first text whose ids are not those of the reference."""
    from tokenizers import Tokenizer as Library

    library = Library.from_str(text)
    n_tokens = library.get_vocab_size()
    sampled = (library.decode([id_]) for id_ in range(0, n_tokens, 1 + n_tokens // _TOKENS))
    for compared in [*hostile_texts([]), *sampled]:
        try:
            expected = reference(compared, add_special_tokens=False).input_ids
            ids = library.encode(compared, add_special_tokens=False).ids
        except Exception as error:  # of the library: such as a vocabulary without [UNK]
            raise TokenizerError(f"{where}: cannot encode text: {_first_line(error)}") from None
        if ids != list(expected):
            raise TokenizerError(
                f"{where}: a tokenizer.json made of its files gives other ids than "
                f"{type(reference).__name__} for {json_text(compared[:40])}, so it is not used"
            )


def _first_line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0].rstrip(" .:")
