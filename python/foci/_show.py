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
    """The tables of comparisons and models as text, and as a page with figures, which a notebook
    shows and `save` writes."""

    def __init__(self, text: str, page: str) -> None:
        self.text = text
        self.page = page

    def _repr_html_(self) -> str:
        return f'<iframe srcdoc="{html.escape(self.page)}" style="width: 100%; height: 48em; border: 0"></iframe>'

    def save(self, path: str) -> None:
        """Write the page, one file of HTML that needs no other."""
        pathlib.Path(path).write_text(self.page, encoding="utf-8")

    def __repr__(self) -> str:
        return self.text


def _drawn(*arguments: str, cwd: Optional[str] = None) -> Picture:
    """The picture that a verb with --out FILE draws."""
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "picture.svg"
        command(*arguments, "--out", str(path), "--quiet", cwd=cwd)
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
        with open(pathlib.Path(folder) / "weights", "wb") as file:  # its name is the title
            np.save(file, floats(found, "weights"))
        return _drawn("map", "--weights", "weights", cwd=folder)


def show_model(folder: str, text: str, *, layers: str = "", heads: str = "") -> Picture:
    """The weights of a model of `foci train` on a text: `foci map FOLDER --prompt TEXT`.

    ``layers`` and ``heads`` are numbers, "0,2-3", or of layers a part of their name."""
    chosen = [*(["--layer", layers] if layers else []), *(["--head", heads] if heads else [])]
    return _drawn("map", folder, "--prompt", text, *chosen)


def show_report(*folders: str) -> Report:
    """The tables and figures of comparisons and models: `foci report FOLDER...`."""
    with tempfile.TemporaryDirectory() as folder:
        page = pathlib.Path(folder) / "report.html"
        command("report", *folders, "--out", str(page), "--quiet")
        return Report(command("report", *folders, "--quiet"), page.read_text(encoding="utf-8"))
