"""The benchmark's options, and the variables that stand in for them."""

from __future__ import annotations

import argparse
import os
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.contenders import ENGINES, SECTIONS, SLOW

PEERS = (*SLOW, *ENGINES)
DEFAULT_PEERS = "encode_batch,datatrove,gigatoken,fastokens"
DEFAULT_SECTIONS = "peers,ceiling,auto,start"
COMPARED = {"gpt2": "", "qwen2.5": "<|endoftext|>", "llama3": "", "llama2-from-spm": ""}
"""The tokenizers that are taken from a directory of tokenizers, with their eos."""


@dataclass(frozen=True, slots=True)
class Options:
    """What is asked for. Empty `inputs` and `tokenizers`: the samples of the repository."""

    inputs: tuple[tuple[str, Path], ...]
    tokenizers: tuple[tuple[Path, str], ...]
    sections: tuple[str, ...]
    peers: tuple[str, ...]
    pairs: int
    cores: int
    arguments: tuple[str, ...]
    work: Path | None
    json: Path | None
    readme: Path | None


def read_options(arguments: Sequence[str]) -> Options:
    """Read the command line; BENCH_DATA and BENCH_TOKENIZERS serve where options are missing."""
    args = _parser().parse_args(arguments)
    inputs = args.input or os.environ.get("BENCH_DATA", "").split()
    tokenizers = args.tokenizer or os.environ.get("BENCH_TOKENIZERS", "").split()
    return Options(
        inputs=tuple(named_input(value) for value in inputs),
        tokenizers=tuple(found for value in tokenizers for found in expanded(value)),
        sections=_among(args.sections, tuple(SECTIONS), "sections"),
        peers=_among(args.peers, PEERS, "peers"),
        pairs=args.pairs,
        cores=args.cores,
        arguments=tuple(shlex.split(args.tokmill)),
        work=args.work,
        json=args.json,
        readme=args.readme,
    )


def named_input(value: str) -> tuple[str, Path]:
    """Read `NAME=PATH`, or `PATH`, whose name is then the file's."""
    name, found, path = value.partition("=")
    if not found:
        name, path = Path(value).name.split(".")[0], value
    return name, Path(path).resolve()


def tokenizer_with_eos(value: str) -> tuple[Path, str]:
    """Read `PATH` or `PATH:EOS`; the eos is empty where the tokenizer's own files name it."""
    path, _, eos = value.partition(":")
    return Path(path).resolve(), eos


def expanded(value: str) -> list[tuple[Path, str]]:
    """Return a tokenizer, or those of `COMPARED` that a directory of tokenizers has."""
    path, eos = tokenizer_with_eos(value)
    found = [(path / name, end) for name, end in COMPARED.items() if (path / name).is_dir()]
    return found or [(path, eos)]


def _among(value: str, known: Sequence[str], what: str) -> tuple[str, ...]:
    chosen = tuple(known) if value == "all" else tuple(filter(None, value.split(",")))
    unknown = [name for name in chosen if name not in known]
    if unknown:
        raise SystemExit(f"--{what}: unknown {', '.join(unknown)}; known: {', '.join(known)}")
    return chosen


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m bench",
        description="Runs tokmill and its peers in turn and prints ratios of text per second.",
        epilog="Sections: " + "; ".join(f"{name}: {what}" for name, what in SECTIONS.items()),
    )
    add = parser.add_argument
    of_tokenizers = f"a directory or file, or a directory with some of {', '.join(COMPARED)}"
    add("--input", nargs="+", metavar="NAME=PATH", help="JSON Lines; default: the samples")
    add("--tokenizer", nargs="+", metavar="PATH[:EOS]", help=of_tokenizers)
    add("--sections", default=DEFAULT_SECTIONS, help=f"all, or of {','.join(SECTIONS)}")
    add("--peers", default=DEFAULT_PEERS, help=f"all, or of {','.join(PEERS)}")
    add("--pairs", type=_positive, default=3, help="rounds; slow peers run in the first one only")
    add("--cores", type=_positive, default=0, help="keep to this many processors")
    add("--tokmill", default="", metavar="OPTIONS", help="further options of `tokmill pretrain`")
    add("--work", type=Path, help="directory for files; default: a temporary one")
    add("--json", type=Path, help="write every figure there")
    add("--readme", type=Path, help="rewrite the table between its two comments")  # fmt: skip
    return parser


def _positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"expected at least 1, found {value}")
    return value
