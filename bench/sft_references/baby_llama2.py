"""baby-llama2-chinese's `SFTDataset`, whose mask is aligned with the predictor.

Position i of its mask belongs to the pair (id i, id i + 1), so it is moved by one. The last pair is
eos and the pad behind it, which it trains: a known fault, and beyond the sample's own tokens.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from bench.libraries import is_sentencepiece, load_tokenizers
from bench.parity import Encode, load_reference
from bench.sft_references.foreign import load_file
from bench.sft_references.one_by_one import CannotSayError, OneByOne
from bench.sft_values import Case, Reference, Sample
from bench.values import NotMeasured
from tokmill.settings.schema import TokenizerSettings
from tokmill.settings.sft import SftSettings
from tokmill.tokenizer.tokenizer import load_tokenizer

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tokmill.chat.conversation import Conversation

_STUBS = ("pandas", "sklearn", "chatglm_tokenizer")
_NO_LIMIT = 1 << 40


def cases(tokenizer: Path, eos: str, source: Path, work: Path) -> Iterator[tuple[Case, Reference]]:
    """Return its one form, `prompt <bos> answer <eos>`, where the tokenizer has both."""
    module = load_file(source / "dataset_sft.py", _STUBS)
    bos, eos = _ends(tokenizer, eos)
    loaded = load_tokenizer(TokenizerSettings(str(tokenizer), eos_token=eos, bos_token=bos))
    assert loaded.bos is not None
    encode = _encoder(tokenizer)
    theirs = SimpleNamespace(
        special_tokens={"<bos>": loaded.bos.id, "<eos>": loaded.eos.id},
        encode=lambda text, add_special_tokens: encode([text])[0],
    )
    settings = SftSettings(preset="baby-llama2")
    case = Case(tokenizer, settings, "baby-llama2, built in", eos, bos)
    yield case, OneByOne(lambda one: _sample(module.SFTDataset, theirs, one))


def _encoder(tokenizer: Path) -> Encode:
    """Return an encoder of texts that makes no added token of them, as that of ChatGLM."""
    if is_sentencepiece(tokenizer):
        return load_reference(tokenizer)
    library = load_tokenizers(tokenizer)
    added = library.get_added_tokens_decoder().values()
    library.add_special_tokens([token.content for token in added if token.content.strip()])
    return lambda texts: [library.encode(text, add_special_tokens=False).ids for text in texts]


def _ends(tokenizer: Path, eos: str) -> tuple[str, str]:
    """Return the strings of bos and eos: those configured, or SentencePiece's."""
    if is_sentencepiece(tokenizer):
        return "<s>", eos or "</s>"
    from bench.sft_references.transformers_chat import load_fast

    library = load_fast(tokenizer, eos)
    if not library.bos_token or not library.eos_token:
        raise NotMeasured("it has no bos, or no eos")
    return str(library.bos_token), str(library.eos_token)


def _sample(dataset_type: Any, tokenizer: Any, conversation: Conversation) -> Sample:
    roles = [message["role"] for message in conversation.messages]
    more = {key for message in conversation.messages for key in message}
    if roles != ["user", "assistant"] or more & {"tool_calls", "reasoning_content"}:
        raise CannotSayError("it has one prompt and one answer")
    prompt, answer = (message["content"] for message in conversation.messages)
    ids = tokenizer.encode(prompt, add_special_tokens=False)
    n = len(ids) + len(tokenizer.encode(answer, add_special_tokens=False)) + 2
    row = SimpleNamespace(iloc=[{"prompt": prompt, "answer": answer}], shape=(1,))
    # One pad, so that the pair of eos and pad is there.
    dataset = dataset_type(row, tokenizer, n + 1, _NO_LIMIT, _NO_LIMIT)
    x, _, mask = dataset[0]
    return Sample(x.tolist(), [0, *mask.tolist()[:-1]])
