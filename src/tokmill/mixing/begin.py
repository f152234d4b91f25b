"""Begin a mix in a place, or continue the one that it holds.

A mix that is being made has a request in its folder `.mix`: which mix the files there are of, and
since which start of the machine, as they are not synced. Its plan and the records of its parts
outlast that.
"""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tokmill.dataset.checksum import canonical_json, sha256_hex
from tokmill.dataset.contents import (
    contents_of,
    foreign_message,
    is_hidden,
    owned_names,
    remove_contents,
    remove_leftovers,
)
from tokmill.dataset.identity import identity_of
from tokmill.dataset.layout import MANIFEST, MIX, MIX_REQUEST, ORIGIN, PLAN, REJECTS
from tokmill.dataset.made_by import MIX as MADE_BY_MIX
from tokmill.dataset.made_by import maker_in
from tokmill.dataset.manifest import slice_of_part
from tokmill.dataset.plan_file import parse_plan
from tokmill.dataset.reader import intact_manifest_in, surrounding_dataset
from tokmill.dataset.sidecars import METADATA
from tokmill.errors import StateError, StorageError, UsageError
from tokmill.extensions import find_path
from tokmill.mixing.checks import STAMPS
from tokmill.mixing.settings import MARK, default_of, is_unset
from tokmill.run.output import complete_manifest
from tokmill.storage import make_folder
from tokmill.urls import store_url

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from tokmill.dataset.manifest import HeldOutFile, Manifest, Mix
    from tokmill.dataset.place import Place
    from tokmill.mixing.checks import InputFiles
    from tokmill.mixing.inputs import Input, Inputs
    from tokmill.mixing.settings import MixSettings

_REMEDY = "name another output, or --overwrite removes it"

_MOST_CHANGES = 3
"""Differences from the mix that stands at the output that a message names."""


@dataclass(frozen=True, slots=True)
class Asked:
    """What was asked: everything that decides the bytes of a mix.

    `settings`: their plain values. `inputs`: directory and identity of each dataset. `against`: the
    files of held-out texts.
    """

    fingerprint: str
    settings: Mapping[str, Any]
    inputs: Sequence[Mapping[str, Any]]
    against: Sequence[HeldOutFile] = ()


def asked_of(
    settings: MixSettings, inputs: Inputs, lists: Sequence[str], against: Sequence[HeldOutFile]
) -> Asked:
    """Return what was asked; `lists`: the sums of the drop lists; `against`: see `Asked`."""
    identity = _identity(settings, inputs, lists)
    if against:
        identity["against"] = [list(file) for file in against]
    fingerprint = sha256_hex(canonical_json(identity))
    datasets = [
        {"directory": dataset.place, "identity": identity_of(dataset.manifest, dataset.place)}
        for dataset in inputs.datasets
    ]
    return Asked(fingerprint, settings.identity(), datasets, against)


def _identity(settings: MixSettings, inputs: Inputs, lists: Sequence[str]) -> dict[str, Any]:
    """Return what decides the bytes of a mix, and nothing of how its inputs were made.

    `lists`: the sums of the drop lists.
    """
    code = ""
    if settings.where and (extension := find_path("where", settings.where).extension):
        code = extension.sha256
    packing = [inputs.packing, inputs.has_packed_rows]
    if inputs.max_samples_per_row:  # mixes that are there already know no such rule
        packing.append(inputs.max_samples_per_row)
    return {
        "settings": settings.identity(),
        "inputs": [_input_identity(dataset) for dataset in inputs.datasets],
        # Which documents each request takes: a source is named by the paths of its dataset.
        "request_of_source": inputs.request_of_row.tolist(),
        "slices_of_sources": [source.n_slices for source in inputs.rows],
        "keep": list(inputs.keep),
        "packing": packing,
        "drop": list(lists),
        "where": code,
    }


def _input_identity(dataset: Input) -> list[Any]:
    """Return the identity of an input with all that a mix carries, and the slices of its shards.

    What is carried: origins, kept fields and rejects.
    """
    manifest = dataset.manifest
    beside = [
        name
        for name, _ in manifest.files_of_shards(manifest.shards)
        if name.endswith((ORIGIN, METADATA))
    ]
    rejects = (file.name for file in manifest.files)
    beside += sorted(name for name in rejects if name.startswith(f"{REJECTS}/"))
    slices = []
    for shard in manifest.shards:
        first = shard.first_slice
        if first is None:
            first = slice_of_part(manifest.mix, int(shard.name.split("-")[1]))
        slices.append([shard.name, first])
    return [identity_of(manifest, dataset.place, beside), slices]


def check_output(place: Place, inputs: Inputs, settings: MixSettings) -> None:
    """Check that the inputs can be read, and that none of them stands in the output.

    Raises:
        StateError: one does, or the output is inside a dataset.
        UsageError: the output is in a store, and an input is not, or this is more than a merge.
    """
    output = Path(settings.output).resolve()
    looks = bool(settings.dedup or settings.against)
    if outer := surrounding_dataset(output):
        raise StateError(f"{place.where}: is inside the dataset {outer}: name another output")
    for dataset in inputs.datasets:
        if store_url(dataset.directory):
            if place.mapped is None and (not is_linked(settings, inputs) or looks):
                raise UsageError(
                    f"{place.where}: a store only joins whole datasets: write the mix to a disk, "
                    "and copy it"
                )
        elif output in ((source := dataset.directory.resolve()), *source.parents):
            raise StateError(
                f"{place.where}: {dataset.place} would be replaced: name another output"
            )
        elif place.mapped is None:
            raise UsageError(
                f"{dataset.place}: is on a disk and the output in a store: write the mix to a "
                "disk, and copy it"
            )


def is_linked(settings: MixSettings, inputs: Inputs) -> bool:
    """Return whether all shards stay as they are."""
    is_whole = all(r.epochs == 1 and not r.source for r in inputs.requests)
    changes = settings.is_shuffled or settings.has_filters or settings.shard_tokens
    is_widened = any(d.manifest.dtype != inputs.dtype.name for d in inputs.datasets)
    has_others = any(dataset.keep != inputs.keep for dataset in inputs.datasets)
    algorithms = {dataset.output.checksum for dataset in inputs.datasets}
    is_same = not (changes or is_widened or has_others or len(algorithms) > 1)
    return is_whole and is_same and settings.dedup in ("", MARK)


def begin(
    place: Place, asked: Asked, files: InputFiles, warn: Callable[[str], None], *, overwrite: bool
) -> Manifest | None:
    """Begin a mix in a place that is held, or find what is left to do of the one that it holds.

    Returns:
        The manifest if nothing is left to do. `files`: of the inputs.

    Raises:
        StateError: something else stands there; nothing was changed.
        VerifyError: a finished mix has lost a file, and an input is damaged; nothing was changed.
    """
    if overwrite:
        begin_again(place, asked)
        return None
    contents = contents_of(place)
    if MANIFEST in contents.ours:
        return _of_finished(place, asked, files, warn)
    if contents.in_the_way:
        raise StateError(foreign_message(place.where, contents.what, contents.in_the_way))
    fingerprint, boot = _request_in(place)
    if PLAN in contents.ours:
        earlier = parse_plan(place.read(PLAN), f"{place.where}/{PLAN}").mix
        _check_same(place, earlier, asked)
    elif fingerprint != asked.fingerprint and not all(map(is_hidden, contents.ours)):
        raise StateError(f"{place.where}: holds {contents.what} that is not this mix: {_REMEDY}")
    # Without the stamps nobody knows whether the parts are of the inputs as they are now.
    if fingerprint != asked.fingerprint or f"{MIX}/{STAMPS}" not in contents.ours:
        begin_again(place, asked)
    elif boot != _boot():
        for name in contents.ours:
            if name.startswith(f"{MIX}/") and name not in (MIX_REQUEST, f"{MIX}/{STAMPS}"):
                place.remove(name)
        _request(place, asked)
    return None


def _of_finished(
    place: Place, asked: Asked, files: InputFiles, warn: Callable[[str], None]
) -> Manifest | None:
    """Return the manifest of a mix that is complete; None if it has lost a file.

    Raises:
        StateError: it is of another mix or no mix; or a file is missing of a mix without a plan.
        VerifyError: a file is missing, and an input is damaged: nothing could be made again.
    """
    manifest, entries = intact_manifest_in(place), place.entries()
    _check_same(place, manifest.mix, asked)
    remove_temporary(place)
    lost = [file.name for file in manifest.files if entries.get(file.name) != file.n_bytes]
    if not lost:
        remove_leftovers(place)
        return manifest
    owned = owned_names(place, entries)
    if owned is None:
        name = f"{place.where}/{lost[0]}"
        raise StateError(f"{name}: was removed or cut: --overwrite makes the mix again")
    files.check_all()  # later, damage would cost the parts that are still there
    complete_manifest(place, entries, owned, warn, lambda: None)
    _request(place, asked)
    return None


def _check_same(place: Place, earlier: Mix | None, asked: Asked) -> None:
    """Check that what stands in a place is this mix; raises `StateError`.

    `earlier`: the key `mix` of its plan or manifest; None: it is no mix.
    """
    if earlier is None:
        maker = maker_in(place)
        raise StateError(f"{place.where}: holds {maker}: {_REMEDY}")
    if earlier.fingerprint == asked.fingerprint:
        return
    changes = list(_changes(earlier, asked))
    more = f" and {len(changes) - _MOST_CHANGES} more" if len(changes) > _MOST_CHANGES else ""
    told = f"{'; '.join(changes[:_MOST_CHANGES])}{more}: " if changes else ""
    raise StateError(
        f"{place.where}: holds {MADE_BY_MIX} of other inputs or settings: {told}{_REMEDY}"
    )


def _changes(earlier: Mix, asked: Asked) -> Iterator[str]:
    """Yield a line for each setting and each dataset that differs from those of a mix before."""
    settings = {**earlier.settings, **asked.settings}  # a plan leaves out some that are not set
    for key in settings:
        before, now = (one.settings.get(key, default_of(key)) for one in (earlier, asked))
        if before != now:
            were, are = _said(key, before), _said(key, now)
            if key == "inputs":
                yield f"the datasets were {were}, are {are}"
            else:
                yield f"{key} was {were}, is {are}"
    identities = {one.directory: one.identity for one in earlier.inputs}
    for one in asked.inputs:
        if identities.get(one["directory"], one["identity"]) != one["identity"]:
            yield f"{one['directory']} holds other tokens"
    of_files = {file.path: file.identity for file in earlier.against}
    for file in asked.against:
        if of_files.get(file.path, file.identity) != file.identity:
            yield f"{file.path} holds other held-out texts"


def _said(key: str, value: Any) -> str:
    """Return the value of a setting for a message."""
    if isinstance(value, list):
        return ", ".join(map(str, value)) or "none"
    return "not set" if is_unset(key, value) else str(value)


def begin_again(place: Place, asked: Asked) -> None:
    """Remove what an earlier mix has left, and ask for this one."""
    remove_contents(place)
    _request(place, asked)


def _request(place: Place, asked: Asked) -> None:
    """Write which mix is made."""
    make_folder(place.local, MIX)
    request = {"boot": _boot(), "fingerprint": asked.fingerprint}
    place.write(MIX_REQUEST, json.dumps(request).encode())


def _request_in(place: Place) -> tuple[str, str]:
    """Return the fingerprint of a mix that was stopped, and what `_boot` was then."""
    try:
        request = json.loads(place.read(MIX_REQUEST))
        return request["fingerprint"], request["boot"]
    except (FileNotFoundError, StorageError, ValueError, LookupError, TypeError, RecursionError):
        return "", ""


def remove_temporary(place: Place) -> None:
    """Remove what tasks have written for each other."""
    place.remove(MIX_REQUEST)
    shutil.rmtree(place.local / MIX, ignore_errors=True)


def _boot() -> str:
    """Return what is another one after the machine was started again; '' where nobody says it."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""
