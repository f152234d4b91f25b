"""Tokenizer files as the peers load them, without tokmill's recipe."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.values import NotMeasured

if TYPE_CHECKING:
    from tokmill.tokenizer.tokenizer import Tokenizer


def tokenizer_file(path: Path) -> Path:
    """Return the file of a tokenizer: `tokenizer.json`, else `tokenizer.model`, of a directory."""
    if not path.is_dir():
        return path
    for name in ("tokenizer.json", "tokenizer.model"):
        if (path / name).exists():
            return path / name
    raise NotMeasured(f"{path.name}: no tokenizer.json and no tokenizer.model")


def is_sentencepiece(path: Path) -> bool:
    """Return whether the reference for this tokenizer is SentencePiece itself."""
    return tokenizer_file(path).suffix == ".model"


def family(path: Path) -> str:
    """Name the family of a tokenizer."""
    file = tokenizer_file(path)
    if file.suffix == ".model":
        return "SentencePiece model"
    if file.suffix != ".json":
        return "tiktoken ranks"
    content = json.loads(file.read_bytes())
    model = content["model"]
    old = "BPE" if "merges" in model else "Unigram" if isinstance(model.get("vocab"), list) else "?"
    kind = model.get("type") or old  # files of before 0.6 name no type
    if kind != "BPE":
        return str(kind)
    stages = json.dumps([content.get("pre_tokenizer"), content.get("decoder")])
    return "byte-level BPE" if '"ByteLevel"' in stages else "SentencePiece BPE"


def load_tokenizers(path: Path) -> Any:
    """Load the `tokenizers` library, with control tokens in texts taken as text."""
    from tokenizers import Tokenizer as Library

    library = Library.from_file(str(tokenizer_file(path)))
    library.no_truncation()
    library.no_padding()
    library.encode_special_tokens = True
    return library


def load_sentencepiece(path: Path) -> Any:
    """Load SentencePiece itself."""
    from sentencepiece import SentencePieceProcessor

    return SentencePieceProcessor(model_file=str(tokenizer_file(path)))


def described(path: str, eos: str) -> Tokenizer:
    """Return tokmill's description of a tokenizer: its eos, and the JSON that engines load."""
    from tokmill.settings.schema import TokenizerSettings
    from tokmill.tokenizer.tokenizer import load_tokenizer

    return load_tokenizer(TokenizerSettings(path=path, eos_token=eos))
