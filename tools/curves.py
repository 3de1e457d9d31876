#!/usr/bin/env python3
"""curves.py OUT.svg TITLE=LOG... -- learning curves of `foci train --log`, a panel each: the
loss of steps, averaged over a fiftieth of them, and of validation, over minutes."""
import json
import sys
from xml.sax.saxutils import escape

WIDTH, HEIGHT, LEFT, TOP, GAP = 300, 200, 44, 34, 34
COLOURS = {"training": "#9aa7b5", "validation": "#1f5fa8"}


def read(path):
    steps = [json.loads(line) for line in open(path, encoding="utf-8")]
    size = max(len(steps) // 50, 1)
    parts = [steps[i:i + size] for i in range(0, len(steps) - size + 1, size)]
    return {
        "training": [(p[-1]["seconds"] / 60, sum(s["loss"] for s in p) / size)
                     for p in parts],
        "validation": [(s["seconds"] / 60, s["valid_loss"]) for s in steps
                       if "valid_loss" in s],
    }


def nice(x):
    """A round number of about a quarter of x."""
    unit = 10 ** (len(str(int(x / 4))) - 1) if x >= 4 else 0.1
    return max(round(x / 4 / unit), 1) * unit


def panel(title, curves, left):
    points = [p for curve in curves.values() for p in curve]
    last = max(x for x, _ in points)
    low, high = min(y for _, y in points), min(max(y for _, y in points), 7)

    def at(x, y):
        return (left + LEFT + x / last * WIDTH,
                TOP + (high - min(y, high)) / (high - low) * HEIGHT)

    out = [f'<text x="{left + LEFT}" y="{TOP - 14}" class="title">{escape(title)}</text>']
    step = nice(high - low)
    ticks = [step * i for i in range(int(low / step) + 1, int(high / step) + 1)]
    for y in ticks:
        x0, y0 = at(0, y)
        out.append(f'<path d="M{x0:.1f} {y0:.1f}h{WIDTH}" class="grid"/>'
                   f'<text x="{x0 - 6:.1f}" y="{y0 + 4:.1f}" class="left">{y:.4g}</text>')
    step = nice(last)
    for i in range(int(last / step) + 1):
        x0, y0 = at(step * i, low)
        out.append(f'<text x="{x0:.1f}" y="{y0 + 18:.1f}" class="under">{step * i:.3g}</text>')
    for name, curve in curves.items():
        line = " ".join(f"{x:.1f},{y:.1f}" for x, y in (at(*p) for p in curve))
        out.append(f'<polyline points="{line}" stroke="{COLOURS[name]}"/>')
    return out


def main():
    to, *named = sys.argv[1:]
    wide = LEFT + WIDTH + GAP
    out = []
    for i, (title, path) in enumerate(n.split("=", 1) for n in named):
        out += panel(title, read(path), i * wide)
    width, height = len(named) * wide, TOP + HEIGHT + 48
    for i, (name, colour) in enumerate(COLOURS.items()):
        x = LEFT + i * 110
        out.append(f'<path d="M{x} {height - 10}h20" stroke="{colour}" stroke-width="2"/>'
                   f'<text x="{x + 26}" y="{height - 6}">{name}</text>')
    out.append(f'<text x="{width - GAP}" y="{height - 6}" class="left">nats over minutes</text>')
    open(to, "w", encoding="utf-8").write(
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
        f'width="{width}" height="{height}" font-family="sans-serif" font-size="12">\n'
        "<style>.title{font-weight:bold}.grid{stroke:#e2e6ea}.left{text-anchor:end}"
        ".under{text-anchor:middle}polyline{fill:none;stroke-width:1.6}</style>\n"
        f'<rect width="{width}" height="{height}" fill="white"/>\n'
        + "\n".join(out) + "\n</svg>\n")


if __name__ == "__main__":
    main()
