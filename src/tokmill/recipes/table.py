"""The recipes: one for pretraining, one for SFT."""

from __future__ import annotations

from copy import copy
from typing import TYPE_CHECKING, Protocol

from tokmill.extensions import check_extensions
from tokmill.recipes.pretrain import PretrainRecipe

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    import pyarrow as pa

    from tokmill.recipes.encoded import EncodedBlock
    from tokmill.recipes.spec import Part, RunSpec
    from tokmill.sources.blocks import Block


class Recipe(Protocol):
    """Turns blocks of input into tokens; loaded once per process and shared by its threads.

    `schema`: the columns that it reads from a source. `dtype`: of the tokens.
    """

    schema: pa.Schema
    dtype: np.dtype[np.unsignedinteger]

    def read_by(self, spec: RunSpec) -> None:
        """Take the settings with which files are read from a spec of the same run."""

    def process(self, blocks: Sequence[Block]) -> list[EncodedBlock]:
        """Return the documents of each block, at least one; blocks do not influence each other."""


def make_recipe(spec: RunSpec) -> Recipe:
    """Return the recipe of a run.

    Raises:
        StateError: code from outside changed since the run was planned.
        TokmillError: the renderer, the template or the engine does not fit the tokenizer.
    """
    check_extensions(spec.extensions)
    if spec.config.sft is None:
        return PretrainRecipe(spec)
    from tokmill.recipes.sft import SftRecipe

    return SftRecipe(spec)


class Recipes:
    """The recipes of a process, made as its parts need them; all share their engines."""

    def __init__(self, spec: RunSpec) -> None:
        self._spec = spec
        self._made: dict[int, Recipe] = {}

    def of(self, part: Part) -> Recipe:
        """Return the recipe of a part."""
        if part.reading not in self._made:
            spec = self._spec.for_part(part)
            if self._made:
                recipe = copy(next(iter(self._made.values())))
                recipe.read_by(spec)
            else:
                recipe = make_recipe(spec)
            self._made[part.reading] = recipe
        return self._made[part.reading]
