"""Read a small sample of the input: to weigh fields, choose an engine, predict a run.

Windows at positions of a low-discrepancy sequence over all input bytes; from each, the records that
start inside it. So the chance of a record does not depend on its length, and the sample stays even
if reading stops early. Because long records take most of the bytes of such a sample, a prediction
also reads fragments: a thousand short pieces of raw input, which show the mix of languages and
kinds of text more evenly.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import numpy as np

from tokmill.fields import add_fields, used_paths
from tokmill.recipes.encoded import join_records
from tokmill.recipes.left_out import weigh_records
from tokmill.run.forecast.sample import InputSample
from tokmill.run.forecast.windows import (
    has_byte_ranges,
    is_read_completely,
    row_group_slices,
    slice_positions,
    span_over_files,
    spread_positions,
    windows,
)
from tokmill.run.unread_input import describe_unread
from tokmill.sources.formats import open_slice
from tokmill.sources.json_lines import JsonBlock
from tokmill.sources.parse_blocks import parse_blocks
from tokmill.sources.streams import decompressed_bytes, open_binary
from tokmill.storage import storage_errors
from tokmill.values import SampleBatch

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from tokmill.chat.renderer import ChatRenderer
    from tokmill.recipes.left_out import Weighed
    from tokmill.recipes.spec import Part
    from tokmill.render.renderer import Renderer
    from tokmill.settings.schema import InputSettings
    from tokmill.sources.blocks import Block
    from tokmill.sources.files import Slice, SourceFile
    from tokmill.values import Records

    Renderers = Mapping[SourceFile, tuple[InputSettings, Renderer | ChatRenderer]]

_HEAD_BATCH_BYTES = 64 << 10
_MOST_WAITING = 64
_FRAGMENT_BYTES = 1 << 10
_TIGHTER, _LOOSER = 3, 1.2
"""Bounds of the compression of a file, as a multiple of that of its head."""

_MOST_DECODED = 16
"""Decompressed bytes of a sample, as a multiple of its limit: 290 MB of a repeated text take 1 MB
as .gz."""


def read_sample(
    parts: Sequence[Part],
    renderers: Renderers,
    limit_bytes: int,
    *,
    at_random: bool = False,
    labels: frozenset[str] | None = None,
    keep_blocks: bool = False,
) -> InputSample:
    """Return a sample of at most `limit_bytes` of the input; of a smaller input, all records.

    `renderers`: the settings of reading and the renderer of each file.
    Files that can be read only from their beginning are sampled there. `at_random`: random windows,
    so that two copies of a text are as likely in the sample as any two texts. `labels`: count the
    bytes of fields; these are labels, not text. `keep_blocks`: keep the blocks in memory.
    """
    result = InputSample()
    slices = row_group_slices(_slices(parts))
    share = max(1, limit_bytes // len(slices)) if slices else 0
    result.is_complete = is_read_completely(slices, limit_bytes)
    waiting: list[tuple[SourceFile, Block]] = []
    for window in windows(slices, limit_bytes, at_random=at_random):
        left = limit_bytes - result.stored_bytes
        if left <= 0 and not result.is_complete:
            break
        limit = left if has_byte_ranges(window) else share
        limit = limit_bytes if result.is_complete else limit
        pair = renderers[window.file]
        if waiting and (len(waiting) >= _MOST_WAITING or renderers[waiting[0][0]] is not pair):
            _render(waiting, renderers, result, labels)
            waiting = []
        blocks = _read(window, *pair, limit, result, weighs=labels is not None)
        waiting += [(window.file, block) for block in blocks]
        if keep_blocks:
            number = len(result.window_read) - 1
            result.blocks += [(number, window.file, block) for block in blocks]
    if waiting:
        _render(waiting, renderers, result, labels)
    result.heads_only &= not result.is_complete
    return result


def add_fragments(parts: Sequence[Part], found: InputSample, limit_bytes: int) -> None:
    """Add fragments of raw input to a sample until it has read about `limit_bytes`."""
    if found.is_complete or found.heads_only or not found.raw:
        return
    slices = _slices(parts)
    n_fragments = max(0, limit_bytes - found.stored_bytes) // _FRAGMENT_BYTES
    for index, start in slice_positions(slices, spread_positions(slices, n_fragments)):
        data = bytearray()
        for piece in span_over_files(slices, index, start, _FRAGMENT_BYTES):
            found.fragment_bytes += piece.n_bytes
            data += _raw(piece)
        found.fragments.append(data.decode(errors="ignore"))


def _raw(piece: Slice) -> bytes:
    """Return the bytes of a slice; the last line of a file gets an end, so that ends count."""
    with storage_errors(piece.file.path), open_binary(piece.file.path) as file:
        file.seek(piece.start)
        data = file.read(piece.n_bytes)
    ends = piece.stop == piece.file.n_bytes and not data.endswith(b"\n")
    return data + b"\n" if ends else data


def _slices(parts: Sequence[Part]) -> list[Slice]:
    return [piece for part in parts for piece in part.slices]


def _read(
    window: Slice,
    settings: InputSettings,
    renderer: Renderer | ChatRenderer,
    limit_bytes: int,
    into: InputSample,
    *,
    weighs: bool,
) -> list[Block]:
    """Return the blocks of a window, and count them in the sample."""
    by_range = has_byte_ranges(window)
    found: list[Block] = []
    stored = decoded = 0
    options = (settings, renderer.schema, _HEAD_BATCH_BYTES)
    with open_slice(window, *options, samples_head=weighs) as reader:
        for block in reader.blocks():
            # A read can give several blocks; its bytes are counted with the first.
            if block.input_bytes and stored >= limit_bytes and not into.is_complete:
                break
            if decoded >= _MOST_DECODED * limit_bytes:
                into.is_complete = False
                break
            decoded += block.n_bytes
            # The last record can be far longer than the window: count the bytes read.
            stored += block.n_bytes if by_range else block.input_bytes
            if isinstance(block, JsonBlock) and by_range:
                pieces = list(_pieces(block.raw.data))
                into.raw += pieces
                into.raw_windows += [len(into.window_read)] * len(pieces)
            found.append(block)
    into.heads_only |= not by_range
    into.window_bytes += window.n_bytes if by_range else 0
    into.window_ranges.append(window.n_bytes if by_range else 0)
    into.window_read.append(stored)
    into.stored_bytes += stored
    into.input_bytes += _share_of_file(window, decoded, stored)
    return found


def _share_of_file(window: Slice, n_bytes: int, stored: int) -> int:
    """Return the share of a file's stored bytes that `n_bytes` of its decoded bytes take.

    For a file without a decompressed size, the bytes read, `stored`. The size in a .gz can be that
    of its last member alone, and then looks too small.
    """
    source = window.file
    unpacked = decompressed_bytes(source.path, source.compression, window.start, window.stop)
    if not unpacked:
        return stored
    share = round(window.n_bytes * n_bytes / unpacked)
    is_known = source.compression == "zst" or stored / _TIGHTER <= share <= stored * _LOOSER
    return share if is_known else stored


def _render(
    waiting: Sequence[tuple[SourceFile, Block]],
    renderers: Renderers,
    into: InputSample,
    labels: frozenset[str] | None,
) -> None:
    """Add the documents of blocks that are read in one way.

    They are rendered together, since a block alone costs 1 ms.
    """
    _, renderer = renderers[waiting[0][0]]
    parsed = parse_blocks([block for _, block in waiting])
    joined = join_records(parsed)
    rendered = renderer.render(joined)
    rejects = []
    for (file, _), records in zip(waiting, parsed, strict=True):
        rejects += [(f"{file.path}: ", reject) for reject in records.rejects]
        if records.unread is not None:
            into.unread.append(describe_unread(file.path, records.unread))
    if isinstance(rendered, SampleBatch):
        into.texts += rendered.texts()
        into.n_control += np.add.reduceat(
            rendered.control >= 0, rendered.offsets[:-1], dtype=np.int64
        ).tolist()
        rejects += [("", reject) for _, reject in rendered.refused]
    else:
        into.texts += rendered.text.to_pylist()
        if labels is not None:
            used = used_paths(renderer.schema)
            _weigh(waiting, parsed, weigh_records(joined, rendered.rows, used, labels), into)
        rejects += [("", reject) for reject in rendered.rejects]
    if rejects and not into.rejects:
        where, first = rejects[0]
        into.first_reject = f"{where}{first.reason}: {first.message}"
    into.rejects.update(reject.reason for _, reject in rejects)


def _weigh(
    waiting: Sequence[tuple[SourceFile, Block]],
    parsed: Sequence[Records],
    weighed: Sequence[Weighed],
    into: InputSample,
) -> None:
    """Add the bytes of the records' fields, by file."""
    starts = np.cumsum([records.batch.num_rows for records in parsed])
    for row, found in weighed:
        path = waiting[int(np.searchsorted(starts, row, "right"))][0].path
        add_fields(into.fields.setdefault(path, Counter()), found)


def _pieces(data: bytes) -> Iterator[str]:
    """Yield raw bytes in pieces as long as fragments; characters at the cuts are lost."""
    for start in range(0, len(data), _FRAGMENT_BYTES):
        yield data[start : start + _FRAGMENT_BYTES].decode(errors="ignore")
