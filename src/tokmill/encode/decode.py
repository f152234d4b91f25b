"""From ids back to text, for people to look at."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from tokmill.encode.tokenizer import Tokenizer


def load_decoder(tokenizer: Tokenizer) -> Callable[[Sequence[int]], str]:
    """Give the reference library's decoder."""
    if tokenizer.kind == "sentencepiece":
        from sentencepiece import SentencePieceProcessor

        processor = SentencePieceProcessor(model_proto=tokenizer.data)
        return lambda ids: str(processor.decode(list(ids)))
    from tokenizers import Tokenizer as Library

    library = Library.from_str(tokenizer.json)
    return lambda ids: library.decode(list(ids), skip_special_tokens=False)


def runs(ids: Sequence[int], control: Sequence[int]) -> Iterator[tuple[bool, list[int]]]:
    """Split ids into runs of control tokens and of others: (is control, ids), none empty."""
    wanted = set(control)
    run: list[int] = []
    state = False
    for token in ids:
        if run and (token in wanted) != state:
            yield state, run
            run = []
        state = token in wanted
        run.append(token)
    if run:
        yield state, run
