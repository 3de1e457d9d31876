"""Pictures and tables, shown where a notebook shows results."""

from __future__ import annotations

import html
import pathlib
import tempfile
from typing import Any, Optional

import numpy as np

from ._command import command
from ._errors import ArgumentError
from ._tensors import array, floats


class Picture:
    """An SVG: a notebook shows it, `save` writes it."""

    def __init__(self, svg: str) -> None:
        self.svg = svg

    def _repr_svg_(self) -> str:
        return self.svg

    def save(self, path: str) -> None:
        """Write the picture."""
        pathlib.Path(path).write_text(self.svg, encoding="utf-8")

    def __repr__(self) -> str:
        return f"foci.Picture({len(self.svg)} bytes of SVG)"


class Report:
    """What a verb of the command tells, as text; a notebook shows it as it stands."""

    def __init__(self, text: str) -> None:
        self.text = text

    def _repr_html_(self) -> str:
        return f"<pre>{html.escape(self.text)}</pre>"

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        return self.text


def _drawn(*arguments: str) -> Picture:
    """The picture that a verb with --out FILE draws."""
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "picture.svg"
        command(*arguments, "--out", str(path), "--quiet")
        return Picture(path.read_text(encoding="utf-8"))


def show_pattern(spec: str, n: int = 64, *, m: int = 0, heads: int = 0, dim: int = 16, causal: bool = False,
                 seed: Optional[int] = None, support: bool = False) -> Picture:
    """Which keys each of n queries sees by a spec, and how strongly: `foci map`.

    ``m`` keys in place of n; ``heads`` where a spec has several groups; ``seed`` draws random
    queries and keys; ``support`` leaves the strength out.
    """
    problem = f"{f'h{heads}' if heads else ''}n{n}{f'm{m}' if m else ''}d{dim}{'c' if causal else ''}"
    arguments = ["map", "--pattern", spec, problem]
    if seed is not None:
        arguments += ["--data", "random", "--seed", str(seed)]
    return _drawn(*arguments, *(["--support"] if support else []))


def show_weights(values: Any) -> Picture:
    """A picture of weights, [len_q][len_k] or with heads before it, as `foci.weights` gives
    them (of a batch the first entry): `foci map --weights`."""
    found = array(values, "weights")
    if found.ndim == 4:
        found = found[0]
    if found.ndim not in (2, 3) or 0 in found.shape:
        raise ArgumentError(f"weights has shape {found.shape}: [len_q][len_k] is needed, or heads before it")
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "weights.npy"
        np.save(path, floats(found, "weights"))
        return _drawn("map", "--weights", str(path))


def show_report(*folders: str) -> Report:
    """The table of a comparison: `foci report FOLDER...`."""
    return Report(command("report", *folders, "--quiet"))
