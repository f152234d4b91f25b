"""Where a training loop stands in a sequence of samples, as a dictionary that can be saved."""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any

from tokmill.errors import StateError
from tokmill.loader.order import MOST

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tokmill.loader.sequence import SampleSequence


def state_of(sequence: SampleSequence, key: int) -> dict[str, Any]:
    """Return the state before sample `key`: `fingerprint`, `seed`, `epoch`, `samples_seen`."""
    epoch, seen = divmod(key, sequence.n_samples)
    return {
        "fingerprint": sequence.fingerprint, "seed": sequence.seed,
        "epoch": epoch, "samples_seen": seen,
    }  # fmt: skip


def key_of(state: Mapping[str, Any], sequence: SampleSequence) -> int:
    """Return the number of the next sample at a state.

    Raises:
        StateError: it is no state; or it is of other sources, other weights, another seed or
            `shuffle`.
    """
    try:
        epoch, seen = (operator.index(state[name]) for name in ("epoch", "samples_seen"))
        found = {name: state[name] for name in ("fingerprint", "seed")}
    except (KeyError, TypeError, ValueError) as error:
        raise StateError(
            f"no state of a Loader: {error}; expected fingerprint, seed, epoch, samples_seen"
        ) from None
    for name, expected in (("fingerprint", sequence.fingerprint), ("seed", sequence.seed)):
        if found[name] != expected:
            why = "sources, weights or shuffle changed" if name == "fingerprint" else "changed"
            raise StateError(
                f"state of another sequence: {name} {found[name]} in the state, {expected} "
                f"here ({why}); go on with what it was saved with, or without the state"
            )
    key = epoch * sequence.n_samples + seen
    if not (0 <= seen < sequence.n_samples and 0 <= key <= MOST):
        raise StateError(
            f"state: epoch {epoch}, samples_seen {seen}; expected samples_seen from 0 to "
            f"{sequence.n_samples - 1}, and at most 2^62 samples in all"
        )
    return key
