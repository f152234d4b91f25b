"""The recipes: for pretraining, for SFT, for imports."""

from __future__ import annotations

from copy import copy
from typing import TYPE_CHECKING

from tokmill.extensions import check_extensions
from tokmill.recipes.pretrain import PretrainRecipe

if TYPE_CHECKING:
    from tokmill.recipes.rows import RowRecipe
    from tokmill.recipes.sft import SftRecipe
    from tokmill.recipes.spec import Part, RunSpec
    from tokmill.recipes.tokens import TokenRecipe

    RecordRecipe = PretrainRecipe | SftRecipe | RowRecipe
    Recipe = RecordRecipe | TokenRecipe


def make_recipe(spec: RunSpec) -> Recipe:
    """Return the recipe of a run.

    Raises:
        StateError: code from outside changed since the run was planned.
        TokmillError: the renderer, the template or the engine does not fit the tokenizer.
    """
    check_extensions(spec.extensions)
    if spec.tokens is not None:
        from tokmill.recipes.tokens import TokenRecipe

        return TokenRecipe(spec)
    if spec.rows is not None:
        from tokmill.recipes.rows import RowRecipe

        return RowRecipe(spec)
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
