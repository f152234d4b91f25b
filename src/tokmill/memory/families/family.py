"""A family of models: how its configuration is read, and the numbers that it needs."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tokmill.memory.families.fields import Fields
    from tokmill.memory.model import Model

NEEDED = ("num_hidden_layers", "hidden_size", "num_attention_heads", "vocab_size")
GATED = (*NEEDED, "intermediate_size")
MIXED = (*NEEDED, "num_experts", "num_experts_per_tok", "moe_intermediate_size")


@dataclass(frozen=True, slots=True)
class Family:
    """A family of models.

    `defaults` are what its configuration class in transformers 5.23 takes for keys that a
    config.json leaves out. `names` maps the family's own keys to the common ones. `needed` are the
    keys that a model by numbers must give (none: numbers alone cannot describe it), `implied` what
    such a model has besides.
    """

    build: Callable[[Fields], Model]
    architecture: str
    defaults: Mapping[str, Any]
    names: Mapping[str, str] = field(default_factory=dict)
    needed: tuple[str, ...] = GATED
    implied: Mapping[str, Any] = field(default_factory=dict)

    def common(self, config: Mapping[str, Any]) -> dict[str, Any]:
        """Return a configuration with the common keys; the family's own keys win over them."""
        renamed = {self.names[key]: value for key, value in config.items() if key in self.names}
        return {**config, **renamed}
