"""`tokmill inspect`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tokmill.config import TokenizerSettings
from tokmill.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tokmill.encode.tokenizer import Tokenizer


@click.command("inspect")
@click.argument("directory", type=click.Path(path_type=Path))
@click.option("--document", "-n", type=int, help="Show this document, counted from 0.")
@click.option("--sample", type=int, help="Show this many, spread evenly.  [default: 3]")
@click.option("--tokenizer", "-t", default="", help="The tokenizer, if it has moved.")
@click.option("--max-chars", default=2000, show_default=True, help="Cut longer texts; 0: never.")
@click.option("--ids", "show_ids", is_flag=True, help="Show the ids too.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object a document.")
def command(
    directory: Path,
    document: int | None,
    sample: int | None,
    tokenizer: str,
    max_chars: int,
    show_ids: bool,
    as_json: bool,
) -> None:
    """Show documents of a dataset, decoded; control tokens stand out.

    \b
    Examples:
      tokmill inspect out --sample 3
      tokmill inspect out --document 1234 --ids
    """
    from tokmill.encode.decode import load_decoder
    from tokmill.shards.reader import check_complete, find_document, read_manifest

    manifest = read_manifest(directory)
    check_complete(manifest, directory)
    loaded = _load(manifest, tokenizer)
    decode = load_decoder(loaded)
    for number in _numbers(manifest["totals"]["documents"], document, sample):
        shard, i = find_document(directory, manifest, number)
        ids = [int(token) for token in shard.document(i)]
        where = {"document": number, "shard": shard.name, "tokens": len(ids)}
        if as_json:
            click.echo(json.dumps({**where, "ids": ids, "text": decode(ids)}, ensure_ascii=False))
            continue
        click.secho(f"document {number} ({shard.name}, {len(ids):,} tokens)", bold=True)
        if show_ids:
            click.echo(" ".join(map(str, ids)))
        click.echo(_shown(ids, loaded, decode, max_chars) + "\n")


def _load(manifest: dict[str, Any], moved: str) -> Tokenizer:
    from tokmill.encode.tokenizer import load_tokenizer

    settings = manifest["config"]["tokenizer"]
    loaded = load_tokenizer(
        TokenizerSettings(
            path=moved or settings["path"],
            pattern=settings["pattern"],
            eos_token=str(manifest["tokenizer"]["eos"]["id"]),
        )
    )
    if loaded.sha256 != manifest["tokenizer"]["sha256"]:
        raise UsageError(
            f"{moved or settings['path']}: not the tokenizer of this dataset (sha256 differs): "
            "name the right one with --tokenizer"
        )
    return loaded


def _numbers(total: int, document: int | None, sample: int | None) -> Sequence[int]:
    if document is not None:
        return [document]
    wanted = min(3 if sample is None else sample, total)
    return [i * total // wanted for i in range(wanted)]


def _shown(
    ids: list[int], tokenizer: Tokenizer, decode: Callable[[Sequence[int]], str], max_chars: int
) -> str:
    from tokmill.encode.decode import runs

    control = [*tokenizer.special_ids, tokenizer.eos.id]
    pieces, used = [], 0
    for is_control, run in runs(ids, control):
        text = decode(run)
        if max_chars and used + len(text) > max_chars:
            text = text[: max_chars - used] + f"… ({len(ids):,} tokens in all)"
            pieces.append(text)
            break
        used += len(text)
        pieces.append(click.style(text, fg="magenta", bold=True) if is_control else text)
    return "".join(pieces)
