"""Writes records whose words keep being new: the worst text for an encoder's caches.

    python bench/fresh_words.py OUTPUT.jsonl --bytes 5e9 [--seed 0]

Words are random lower-case letters of random length, so that nearly none comes twice.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np

WORDS_PER_DOCUMENT = 600


def document(rng: np.random.Generator) -> bytes:
    """Return one record as a line of JSON."""
    lengths = rng.integers(3, 12, WORDS_PER_DOCUMENT)
    letters = rng.integers(97, 123, int(lengths.sum()) + WORDS_PER_DOCUMENT, dtype=np.uint8)
    letters[np.cumsum(lengths + 1) - 1] = 32
    text = letters.tobytes().strip()
    half = len(text) // 2
    return b'{"title":"t","summary":"%s","sections":[{"title":"s","content":"%s"}]}\n' % (
        text[:half],
        text[half:],
    )


def main() -> None:
    """Write until the size is reached."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("output", type=Path)
    parser.add_argument("--bytes", type=float, default=5e9)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    rng = np.random.default_rng(args.seed)
    written = 0
    with args.output.open("wb") as file:
        while written < args.bytes:
            written += file.write(document(rng))


if __name__ == "__main__":
    main()
