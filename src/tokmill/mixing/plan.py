"""The plan of a mix: its parts in slices, and what was asked, for `plan.json`."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from tokmill.dataset.checksum import FileEntry, digest_of_chunks
from tokmill.dataset.layout import FORMAT_VERSION, KEPT_TOKENIZER, PLAN
from tokmill.dataset.plan_file import parse_plan
from tokmill.dataset.rules import joined_rules
from tokmill.errors import StateError
from tokmill.mixing.finish import engine_of
from tokmill.mixing.output import amounts_of
from tokmill.place import open_place
from tokmill.recipes.spec import Part
from tokmill.run.mixes import DOCUMENTS, ORDER, MixPlan
from tokmill.sources.slices import Slice, SourceFile
from tokmill.tokenizer.kept import packed_in
from tokmill.version import __version__

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from tokmill.mixing.inputs import Input
    from tokmill.mixing.output import OutputPart
    from tokmill.mixing.tasks import Job


def keep_plan(job: Job, mix: Mapping[str, Any]) -> tuple[MixPlan, list[FileEntry]]:
    """Make the plan and the tokenizer of a mix stand in its place; return it, and their entries.

    `mix`: what was asked and what is taken. A plan that stands there must have the same parts.

    Raises:
        StateError: it has others.
    """
    place, algorithm = job.place, job.output.checksum
    packed = _packed_tokenizer(job)
    head, files = {**_head(job), "mix": mix}, []
    if packed is not None:
        files.append(digest_of_chunks([packed], algorithm).entry(KEPT_TOKENIZER))
        head["tokenizer"] = files[0].as_json()
    plan = MixPlan(head, tuple(_parts(job)))
    content = b"".join(plan.chunks())
    where = f"{place.where}/{PLAN}"
    if not place.create(PLAN, [content]):  # it stands there, and differs
        earlier = MixPlan.of(parse_plan(place.read(PLAN), where))
        is_same = earlier.head.get("mix", {}).get("fingerprint") == mix["fingerprint"]
        if not is_same or earlier.parts != plan.parts:
            raise StateError(
                f"{where}: has other parts than this mix: --overwrite makes the mix again"
            )
        place.write(PLAN, content)  # an input that was made again may have another engine
    if packed is not None:
        place.remove(KEPT_TOKENIZER)
        place.create(KEPT_TOKENIZER, [packed])
    return plan, [digest_of_chunks([content], algorithm).entry(PLAN), *files]


def _packed_tokenizer(job: Job) -> bytes | None:
    """Return the tokenizer of the first input that keeps one; all have the same ids."""
    for dataset in job.inputs.datasets:
        packed = packed_in(open_place(dataset.place))
        if packed is not None:
            return packed
    return None


def _head(job: Job) -> dict[str, Any]:
    """Return what the plan states besides what was asked."""
    inputs = job.inputs
    tokenizer = inputs.manifest.tokenizer
    bos = tokenizer.bos
    output = asdict(job.output)
    del output["dir"]
    return {
        "format_version": FORMAT_VERSION,
        "tokmill_version": __version__,
        "rules": joined_rules(inputs.rules),
        "settings": {"output": output},
        "tokenizer_identity": tokenizer.identity,
        "eos_id": tokenizer.eos.id,
        "bos_id": None if bos is None else bos.id,
        "checksum": job.output.checksum,
        "engine": engine_of(inputs),
        "linked_parts": sum(dataset.n_parts for dataset in inputs.datasets),
    }


def _parts(job: Job) -> Iterator[Part]:
    """Yield the parts in slices: documents of shards, or places in the order of a split."""
    sums = [{file.name: file for file in dataset.manifest.files} for dataset in job.inputs.datasets]
    for part in job.parts:
        if not part.pieces:
            yield Part(part.number, (_places(job, part),))
            continue
        slices = []
        for number in part.pieces:
            piece = job.pieces[number]
            chunk = job.chunks[piece.chunk]
            body = sums[chunk.input][f"{chunk.entry.name}.bin"]
            file = _shard(job.inputs.datasets[chunk.input], body)
            n_bytes = piece.tokens * job.inputs.dtype.itemsize
            slices.append(Slice(file, chunk.start, chunk.stop, n_bytes))
        yield Part(part.number, tuple(slices))


def _shard(dataset: Input, body: FileEntry) -> SourceFile:
    """Return the row of a shard; its time is not in it, so the same bytes are the same file."""
    path = f"{dataset.place}/{body.name}"
    return SourceFile(path, DOCUMENTS, "", body.n_bytes, 0, body.checksum)


def _places(job: Job, part: OutputPart) -> Slice:
    """Return the slice of a part of a shuffle; its bytes are in proportion to its documents."""
    documents, tokens = amounts_of(job.pieces, part.split)
    n_bytes = tokens * job.inputs.dtype.itemsize
    file = SourceFile(part.split, ORDER, "", n_bytes, 0, "")
    share = n_bytes * (part.stop - part.start) // documents
    return Slice(file, part.start, part.stop, share)
