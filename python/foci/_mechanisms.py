"""What mechanisms and modifiers there are."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ._specs import ENTRIES


class Mechanism(dict[str, Any]):
    """What the library says of a mechanism or modifier: name, kind, summary, formula, source,
    arguments, tensors, lists, and of mechanisms what they read, cost and can do."""

    def __repr__(self) -> str:
        arguments = ", ".join(f"{a['name']}={a['default']}" for a in self["arguments"])
        return f"<{self['kind']} {self['name']}({arguments}): {self['summary']}>"


def mechanisms() -> Mapping[str, Mechanism]:
    """The mechanisms by name, with their arguments: `foci list`."""
    return {e["name"]: Mechanism(e) for e in ENTRIES if e["kind"] == "mechanism"}


def modifiers() -> Mapping[str, Mechanism]:
    """The modifiers by name, likewise."""
    return {e["name"]: Mechanism(e) for e in ENTRIES if e["kind"] == "modifier"}
