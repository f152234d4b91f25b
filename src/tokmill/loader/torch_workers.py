"""Batches read ahead by processes of torch's DataLoader; the order is decided in this process."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from tokmill.loader.sequence import Located, SampleSequence
    from tokmill.loader.source import Arrays


class _Batches:
    """A dataset of torch whose index is the rows of a batch."""

    def __init__(self, sequence: SampleSequence, pad: bool) -> None:
        self._sequence, self._pad = sequence, pad

    def __getitem__(self, rows: Located) -> dict[str, Any]:
        """Return a batch as tensors, which torch hands over in shared memory."""
        from tokmill.loader.torch_adapter import tensors

        return tensors(self._sequence.read(rows, pad=self._pad, allocate=None))


def read_in_processes(
    sequence: SampleSequence,
    steps: Iterable[tuple[Located, int]],
    workers: int,
    ahead: int,
    pad: bool,
) -> Iterator[tuple[Arrays, int]]:
    """Yield batches and their keys in the order of `steps`; each worker reads `ahead` batches."""
    import torch.utils.data

    keys: deque[int] = deque()

    def rows_of_steps() -> Iterator[Located]:
        for rows, after in steps:  # the DataLoader asks for more rows than it has handed over
            keys.append(after)
            yield rows

    loader: Any = torch.utils.data.DataLoader(
        _Batches(sequence, pad),
        sampler=rows_of_steps(),
        batch_size=None,
        num_workers=workers,
        prefetch_factor=ahead,
        collate_fn=_same,
        generator=torch.Generator(),  # its own: the program's random numbers do not depend on us
    )
    for batch in loader:
        yield {name: values.numpy() for name, values in batch.items()}, keys.popleft()


def _same(batch: Any) -> Any:
    return batch
