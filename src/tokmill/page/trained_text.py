"""Whether what the masks train is text: decoded, and encoded again by the reference."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from tokmill.engines.engine import REFERENCE, load_engine
from tokmill.page.samples import SampleReader, control_ids
from tokmill.tokenizer.continuation import continuation_tokenizer
from tokmill.tokenizer.control_tokens import added_tokens, with_control_tokens

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path

    from tokmill.page.samples import Sample
    from tokmill.tokenizer.decode import TokenRun
    from tokmill.tokenizer.tokenizer import Tokenizer

MOST_SAMPLES = 1000
"""So many are decoded, spread over the dataset."""


def check_trained_text(
    directory: Path, manifest: Mapping[str, Any], tokenizer: Tokenizer, numbers: Iterable[int]
) -> list[str]:
    """Give a line for each sample whose trained text is not what split encoding leaves.

    With boundary split, a trained text is encoded by itself: its tokens hold whole characters, and
    the reference gives the same ones for it. The latter is asked where tokens are bytes of the
    text and nothing else, so that decoding tells the text. Texts at the ends of a sample, which a
    length rule may have cut, are passed over. Nothing is promised with another boundary, and where
    samples were cut at their beginning: what is repeated untrained may end anywhere.

    Args:
        directory: the dataset.
        manifest: its manifest, of SFT.
        tokenizer: its tokenizer.
        numbers: of the samples to look at.

    Raises:
        VerifyError: a shard is broken.
    """
    mask, rule = manifest["mask"], manifest["config"]["sft"]["too_long"]
    if mask["boundary"] != "split" or (mask["cut"] and rule in ("window", "truncate-left")):
        return []
    reader = SampleReader(directory, manifest, tokenizer)
    problems = []
    found: list[tuple[int, TokenRun]] = []
    for number in numbers:
        for run in _whole_runs(reader.read(number)):
            if any("\udc80" <= character <= "\udcff" for character in run.text):
                problems.append(f"sample {number}: trains a part of a character")
            else:
                found.append((number, run))
    if continuation_tokenizer(tokenizer) is tokenizer and reader.decoder.has_bytes:
        problems += _encoded_otherwise(found, manifest, tokenizer)
    return problems


def _whole_runs(sample: Sample) -> Iterator[TokenRun]:
    """Give the trained texts that do not touch the ends of the sample."""
    return (run for run in sample.runs[1:-1] if run.is_trained and not run.is_control)


def _encoded_otherwise(
    found: list[tuple[int, TokenRun]], manifest: Mapping[str, Any], tokenizer: Tokenizer
) -> Iterator[str]:
    in_text = manifest["config"]["tokenizer"]["control_tokens_in_text"]
    if in_text != "parse":  # then strings of control tokens are text, also of the template's own
        control = control_ids(manifest, tokenizer)
        added = added_tokens(tokenizer)
        names = [string for string, token in added.items() if token.id in control]
        tokenizer = with_control_tokens(tokenizer, names)
    reference = load_engine(REFERENCE, tokenizer, control_in_text=in_text, n_threads=1)
    batch = reference.encode(pa.array([run.text for _, run in found], pa.large_string()))
    for i, (number, run) in enumerate(found):
        ids = batch.ids[batch.offsets[i] : batch.offsets[i + 1]]
        if not np.array_equal(ids, run.ids):
            yield (
                f"sample {number}: its trained text {run.text[:40]!r} has other tokens than the "
                "reference gives for it"
            )
