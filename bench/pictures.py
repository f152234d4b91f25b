"""Makes the pictures of README and docs/ from what tokmill writes: `docs/pictures/`.

    python -m bench.pictures

It makes datasets of `data_samples/`, and takes pictures of their pages with a headless chromium.
Chinese needs a font (Debian: fonts-wqy-microhei). Look at each picture before it is committed.
"""

from __future__ import annotations

import html
import shutil
import subprocess
import sys
import tempfile
import textwrap
from contextlib import chdir
from pathlib import Path
from typing import TYPE_CHECKING

import tokmill

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tokmill import Dataset

ROOT = Path(__file__).parents[1]
PICTURES = ROOT / "docs" / "pictures"
MOST_BYTES = 400_000
"""Of all pictures together."""
BROWSERS = ("chromium", "chromium-browser", "google-chrome")
DEADLINE_S = 120

SAMPLES = (0, 10, 59)
"""Chats that show reasoning, several turns, and Chinese."""
STYLE = "body{margin:14px 18px;font-family:sans-serif;background:#fff}"

BOX_WIDTH, BOX_HEIGHT, GAP, MARGIN = 216, 168, 40, 8
LINE, LINE_LENGTH = 19, 25
"""Pixels from a line to the next, and characters on one."""
TEAL, GREY, LIGHT = "#0b6b6e", "#57606a", "#f4f7f7"


def main() -> int:
    """Write every picture, and print its size."""
    PICTURES.mkdir(exist_ok=True)
    directory = Path(tempfile.gettempdir(), "tokmill-pictures")  # the pages show its name
    directory.mkdir()
    try:
        with chdir(directory):
            make_pictures()
    finally:
        shutil.rmtree(directory)
    sizes = {path.name: path.stat().st_size for path in sorted(PICTURES.iterdir())}
    print(sizes)
    return int(sum(sizes.values()) > MOST_BYTES)


def make_pictures() -> None:
    """Write every picture, with the current directory for all else."""
    dataset, chats = make_datasets()
    (PICTURES / "road.svg").write_text(road(dataset, chats), encoding="utf-8")
    bill = dataset.bill(
        "smollm2-135m",
        gpu="RTX 4090",
        micro_batch=8,
        sequence=1024,
        epochs=100,
        price_per_hour=0.5,
    )
    dataset.report("report.html", bill)
    take(Path("report.html"), PICTURES / "report.png", 1120, 785)
    page = chats.show(SAMPLES)._repr_html_()
    Path("chats.html").write_text(f"<style>{STYLE}</style>{page}", encoding="utf-8")
    take(Path("chats.html"), PICTURES / "chats.png", 960, 585)


def make_datasets() -> tuple[Dataset, Dataset]:
    """Return a dataset of text and one of chats, made in the current directory."""
    shutil.copytree(ROOT / "data_samples", "data_samples")
    inputs = [f"data_samples/{name}" for name in ("records.jsonl", "documents.jsonl", "text")]
    tokenizer = "data_samples/tokenizer"
    dataset = tokmill.pretrain(
        inputs, tokenizer=tokenizer, output="dump", val_fraction=0.05, progress=False
    )
    chats = tokmill.sft(
        "data_samples/sft/chats.jsonl",
        tokenizer=tokenizer,
        output="chats",
        max_tokens=2048,
        packing=2048,
        progress=False,
    )
    return dataset, chats


def take(page: Path, picture: Path, width: int, height: int) -> None:
    """Take a picture of the top of a page.

    Raises:
        FileNotFoundError: no browser is installed.
    """
    browser = next(filter(None, map(shutil.which, BROWSERS)), None)
    if browser is None:
        raise FileNotFoundError(f"no browser: expected one of {', '.join(BROWSERS)}")
    options = ["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"]
    size = f"--window-size={width},{height}"
    command = [browser, *options, size, f"--screenshot={picture}", page.resolve().as_uri()]
    subprocess.run(command, check=True, capture_output=True, timeout=DEADLINE_S)


def road(dataset: Dataset, chats: Dataset) -> str:
    """Return the way from a corpus to a trainer as an SVG, with the figures of two datasets."""
    boxes = list(_boxes(dataset, chats))
    width = len(boxes) * BOX_WIDTH + (len(boxes) - 1) * GAP + 2 * MARGIN
    parts = [_box(number, title, lines) for number, (title, lines) in enumerate(boxes)]
    parts += [_arrow(number) for number in range(len(boxes) - 1)]
    label = ", ".join(title for title, _ in boxes)
    drawn = "\n".join(parts)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {BOX_HEIGHT + 2 * MARGIN}" '
        f'role="img" aria-label="{label}">\n<rect width="100%" height="100%" fill="#fff"/>\n'
        f"{drawn}\n</svg>\n"
    )


def _boxes(dataset: Dataset, chats: Dataset) -> Iterator[tuple[str, list[str]]]:
    """Yield title and lines of each box."""
    files = [Path(row["path"]).name for row in dataset.sources]
    yield "corpus", [f"{dataset.manifest['totals']['records']:,} records", *files]
    text = dataset.text(0)
    begin = textwrap.wrap(text[: 4 * LINE_LENGTH], LINE_LENGTH)[:3]
    yield "documents", [f"{len(dataset):,}, each with its origin", *begin, "…"]
    tokens = [f"{token.id:>6}  {token.text}" for token in dataset.tokens(0)[:4]]
    yield "tokens", [f"{dataset.n_tokens:,}, checked", *tokens, "…"]
    shard = dataset.shards[0].name
    sizes = [f"{shard}.bin", f"  {dataset.dtype}: np.memmap", f"{shard}.idx", "  Megatron"]
    yield "shards", [*sizes, "manifest.json", "  sums of all files"]
    n_trained = int(sum(chats.mask(number).sum() for number in range(len(chats))))
    of_chats = [f"masks of {len(chats)} chats:", f"  {n_trained:,} of {chats.n_tokens:,}"]
    ways = ["nanogpt, megatron, trl, …", "  hard links: no copy", "loader: exact resume"]
    yield "trainer", [*ways, *of_chats]


def _box(number: int, title: str, lines: list[str]) -> str:
    """Return a box with a title and lines of text."""
    x = MARGIN + number * (BOX_WIDTH + GAP)
    texts = [
        f'<text x="{x + 12}" y="{MARGIN + 54 + at * LINE}" font-size="12.5" fill="{GREY}" '
        f'font-family="monospace" xml:space="preserve">{html.escape(line)}</text>'
        for at, line in enumerate(lines)
    ]
    frame = f'x="{x}" y="{MARGIN}" width="{BOX_WIDTH}" height="{BOX_HEIGHT}" rx="8"'
    head = f'x="{x + 12}" y="{MARGIN + 27}" font-size="17" font-weight="bold"'
    return "\n".join(
        [
            f'<rect {frame} fill="{LIGHT}" stroke="{TEAL}"/>',
            f'<text {head} fill="{TEAL}" font-family="sans-serif">{title}</text>',
            *texts,
        ]
    )


def _arrow(number: int) -> str:
    """Return the arrow behind a box."""
    x, y = MARGIN + number * (BOX_WIDTH + GAP) + BOX_WIDTH + 6, MARGIN + BOX_HEIGHT // 2
    end = x + GAP - 12
    return (
        f'<path d="M{x} {y} H{end - 6}" stroke="{TEAL}" stroke-width="2.5"/>'
        f'<path d="M{end} {y} l-9 -6 v12 z" fill="{TEAL}"/>'
    )


if __name__ == "__main__":
    sys.exit(main())
