"""Text throughput of `tokmill pretrain`, end to end, against the reference's `encode_batch` alone.

    python bench/against_reference.py INPUT.jsonl --tokenizer T [--eos-token E] [--pairs 3]

The two run in turn, on the same file and the same cores; the reference gets ready text in memory
and only encodes it. Prints bytes of rendered text per second and the ratio, pair by pair.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from parity import documents

CHUNK = 1024


def reference_s(texts: list[str], tokenizer: Path) -> float:
    """Time `encode_batch` of the `tokenizers` library over ready texts."""
    from tokenizers import Tokenizer

    library = Tokenizer.from_file(str(tokenizer / "tokenizer.json"))
    start = time.perf_counter()
    for i in range(0, len(texts), CHUNK):
        library.encode_batch(texts[i : i + CHUNK], add_special_tokens=False)
    return time.perf_counter() - start


def tokmill_s(path: Path, tokenizer: Path, eos: str, extra: list[str]) -> float:
    """Time the whole command: start, read, parse, render, encode, hash, write, fsync."""
    output = tempfile.mkdtemp(prefix="tokmill-bench-")
    command = [sys.executable, "-m", "tokmill", "pretrain", str(path), "-t", str(tokenizer)]
    command += ["-o", output, "-q", *(["--eos-token", eos] if eos else []), *extra]
    start = time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    seconds = time.perf_counter() - start
    shutil.rmtree(output)
    return seconds


def main() -> None:
    """Run the pairs and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("input", type=Path)
    parser.add_argument("--tokenizer", type=Path, required=True)
    parser.add_argument("--eos-token", default="")
    parser.add_argument("--pairs", type=int, default=3)
    args, extra = parser.parse_known_args()
    texts = list(documents([args.input], ":", "。"))
    n_bytes = sum(len(text.encode()) for text in texts)
    ratios = []
    for _ in range(args.pairs):
        ours = tokmill_s(args.input, args.tokenizer, args.eos_token, extra)
        theirs = reference_s(texts, args.tokenizer)
        ratios.append(theirs / ours)
        print(
            f"tokmill {n_bytes / ours / 1e6:7.1f} MB/s   "
            f"encode_batch {n_bytes / theirs / 1e6:6.1f} MB/s   ratio {theirs / ours:.1f}"
        )
    print(f"median ratio {statistics.median(ratios):.1f} ({min(ratios):.1f} to {max(ratios):.1f})")


if __name__ == "__main__":
    main()
