"""Verify the trained text of samples: decode it, and encode it again with the reference."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from tokmill.engines.engine import REFERENCE, load_engine
from tokmill.inspect.samples import SampleReader, control_ids
from tokmill.tokenizer.continuation import continuation_tokenizer
from tokmill.tokenizer.control_tokens import added_tokens, with_control_tokens

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from tokmill.dataset.manifest import Manifest
    from tokmill.tokenizer.decode import TokenRun
    from tokmill.tokenizer.tokenizer import Tokenizer

MOST_SAMPLES = 1000
"""Number of samples that are decoded, spread over the dataset."""


def check_trained_text(
    directory: Path, manifest: Manifest, tokenizer: Tokenizer, numbers: Iterable[int]
) -> list[str]:
    """Return a line for each sample whose trained text breaks a promise of boundary split.

    With boundary split, each trained text is encoded separately. So its tokens must hold complete
    characters, and the reference must encode the text into the same tokens. The second is checked
    only if tokens are exactly the bytes of the text, so that decoding returns the text. Texts at
    the ends of a sample are skipped, since a length rule may have cut them. Nothing is checked with
    another boundary, or if samples were cut at their start.

    Raises:
        VerifyError: a shard is broken.
    """
    mask, sft = manifest.mask, manifest.config.sft
    if mask is None or sft is None or mask.boundary != "split":
        return []
    if mask.cut and sft.too_long in ("window", "truncate-left"):
        return []
    reader = SampleReader(directory, manifest, tokenizer)
    problems = []
    found: list[tuple[int, TokenRun]] = []
    for number in numbers:
        for run in reader.read(number).runs[1:-1]:
            if run.is_control or not run.is_trained:
                continue
            if any("\udc80" <= character <= "\udcff" for character in run.text):
                problems.append(f"sample {number}: a trained text has an incomplete character")
            else:
                found.append((number, run))
    if continuation_tokenizer(tokenizer) is tokenizer and reader.decoder.has_bytes:
        problems += _encoded_otherwise(found, manifest, tokenizer)
    return problems


def _encoded_otherwise(
    found: list[tuple[int, TokenRun]], manifest: Manifest, tokenizer: Tokenizer
) -> Iterator[str]:
    in_text = manifest.config.tokenizer.control_tokens_in_text
    if in_text != "parse":  # then strings of control tokens are ordinary text
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
                f"sample {number}: the trained text {run.text[:40]!r} has other tokens than the "
                "reference encodes it into"
            )
