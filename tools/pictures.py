#!/usr/bin/env python3
"""pictures.py FOCI DIR -- draw the pictures of docs/mechanisms: one for each mechanism and
two for the modifiers; and those of docs/orthogonal.md, docs/concentration.md and docs/maps.md,
into the folder above.  What shows who sees whom is drawn by `FOCI map`.  The same input gives the same
bytes.  Frozen projections need NumPy."""
import math
import pathlib
import random
import struct
import subprocess
import sys
import tempfile

INK, SOFT, GRID = "#1f2933", "#697586", "#d9e0e8"
BLUE, ORANGE = "#2563a8", "#d9822b"
FONT = "font-family='system-ui, sans-serif'"


class Svg:
    def __init__(self, width, height, title):
        self.size = width, height
        self.parts = [f"<title>{title}</title>",
                      f"<rect width='{width}' height='{height}' rx='8' fill='#ffffff'/>"]

    def rect(self, x, y, w, h, fill):
        self.parts.append(f"<rect x='{x:.1f}' y='{y:.1f}' width='{w:.1f}' "
                          f"height='{h:.1f}' fill='{fill}'/>")

    def line(self, points, stroke, width=1.5, dash=""):
        text = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        extra = f" stroke-dasharray='{dash}'" if dash else ""
        self.parts.append(f"<polyline points='{text}' fill='none' stroke='{stroke}' "
                          f"stroke-width='{width}' stroke-linejoin='round'{extra}/>")

    def circle(self, x, y, r, stroke):
        self.parts.append(f"<circle cx='{x:.1f}' cy='{y:.1f}' r='{r:.1f}' fill='none' "
                          f"stroke='{stroke}'/>")

    def text(self, x, y, text, size=12, fill=INK, anchor="start", weight="normal"):
        self.parts.append(f"<text x='{x:.1f}' y='{y:.1f}' {FONT} font-size='{size}' "
                          f"fill='{fill}' text-anchor='{anchor}' "
                          f"font-weight='{weight}'>{text}</text>")

    def save(self, path):
        w, h = self.size
        body = "\n".join(self.parts)
        path.write_text(f"<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {w} {h}' "
                        f"width='{w}' height='{h}' role='img'>\n{body}\n</svg>\n",
                        encoding="utf-8")


def shade(t):
    """White to dark blue."""
    t = max(0.0, min(1.0, t)) ** 0.7
    a, b = (247, 250, 253), (20, 66, 120)
    return "#" + "".join(f"{round(x + (y - x) * t):02x}" for x, y in zip(a, b))


def softmax(x):
    top = max(x)
    w = [math.exp(t - top) for t in x]
    return [t / sum(w) for t in w]


def l2norm(x):
    return [math.sqrt(t) for t in softmax([2 * t for t in x])]


def relu2(x):
    return [max(t, 0) ** 2 / len(x) for t in x]


def logits(n):
    """Neighbours and tokens of one's own kind score high."""
    draw = random.Random(5)
    kind = [draw.randrange(4) for _ in range(n)]
    return [[2.2 * math.exp(-((i - j) / 2.5) ** 2) + 1.8 * (kind[i] == kind[j]) - 1.2 +
             draw.gauss(0, 0.5) for j in range(n)] for i in range(n)]


def bars(svg, x, y, w, h, values, low, high, fill, label):
    """Bars from zero; negative ones hang."""
    step = w / len(values)
    zero = y + h * high / (high - low)
    svg.text(x, y - 8, label, 12, SOFT)
    for i, v in enumerate(values):
        top = zero - max(v, 0) / (high - low) * h
        svg.rect(x + i * step + 1, top, step - 2, abs(v) / (high - low) * h, fill)
    svg.line([(x, zero), (x + w, zero)], SOFT, 1)


def mechanism(path, name, weigh, claim):
    n, cell, row = 20, 12, 9
    x = logits(n)
    a = [weigh(r) for r in x]
    top = max(max(r) for r in a)
    svg = Svg(700, 320, f"{name}: weights of {n} queries on {n} keys")
    svg.text(24, 34, name, 17, INK, weight="bold")
    svg.text(118, 34, claim, 13, SOFT)
    for i in range(n):
        for j in range(n):
            svg.rect(40 + j * cell, 52 + i * cell, cell - 1, cell - 1, shade(a[i][j] / top))
    svg.line([(39, 51 + row * cell), (39 + n * cell, 51 + row * cell),
              (39 + n * cell, 51 + (row + 1) * cell), (39, 51 + (row + 1) * cell),
              (39, 51 + row * cell)], ORANGE, 1.5)
    svg.text(30, 52 + n * cell / 2, "i", 13, SOFT, "end")
    svg.text(40 + n * cell / 2, 307, "j", 13, SOFT, "middle")
    bars(svg, 330, 78, 340, 88, x[row], min(x[row]), max(x[row]), SOFT,
         "logits x of the framed row")
    high = max(a[row])
    bars(svg, 330, 202, 340, 88, a[row], 0, high, BLUE,
         f"its weights: sum {sum(a[row]):.2f}, largest {high:.2f}")
    svg.save(path)


def axes(svg, x, y, w, h, title, note):
    svg.text(x, y - 12, title, 14, INK, weight="bold")
    svg.text(x, y + h + 20, note, 11, SOFT)
    svg.line([(x, y), (x, y + h), (x + w, y + h)], GRID, 1)


def curve(svg, x, y, w, h, f, a, b, low, high, stroke, dash=""):
    points = []
    for i in range(61):
        t = a + (b - a) * i / 60
        v = min(max(f(t), low), high)
        points.append((x + w * i / 60, y + h * (1 - (v - low) / (high - low))))
    svg.line(points, stroke, 2, dash)


def arrow(svg, x, y, r, angle, stroke):
    svg.line([(x, y), (x + r * math.cos(angle), y - r * math.sin(angle))], stroke, 2)


def modifiers(path):
    svg = Svg(720, 420, "What each modifier does to the logits")
    w, h = 190, 120
    place = [(24 + 236 * (i % 3), 44 + 200 * (i // 3)) for i in range(6)]

    x, y = place[0]
    axes(svg, x, y, w, h, "scale(s)", "x over q.k, for three values of s")
    for s, dash in ((0.25, "2 3"), (0.5, "5 3"), (1, "")):
        curve(svg, x, y, w, h, lambda t, s=s: s * t, -3, 3, -3, 3, BLUE, dash)

    x, y = place[1]
    axes(svg, x, y, w, h, "cap(c)", "c tanh(x/c) against x itself")
    curve(svg, x, y, w, h, lambda t: t, -3, 3, -3, 3, SOFT, "2 3")
    curve(svg, x, y, w, h, lambda t: 1.5 * math.tanh(t / 1.5), -3, 3, -3, 3, BLUE)

    x, y = place[2]
    axes(svg, x, y, w, h, "logn(n0, clamp)", "factor by keys seen; dashed: clamp=1")
    factor = lambda n: math.log(max(n, 1)) / math.log(512)
    curve(svg, x, y, w, h, factor, 1, 4096, 0, 1.5, BLUE)
    curve(svg, x, y, w, h, lambda n: max(1, factor(n)), 1, 4096, 0, 1.5, ORANGE, "5 3")

    x, y = place[3]
    svg.text(x, y - 12, "qknorm(tau)", 14, INK, weight="bold")
    svg.text(x, y + h + 20, "only the angle of q and k counts", 11, SOFT)
    for cx, scaled in ((x + 45, False), (x + 145, True)):
        cy = y + 62
        svg.circle(cx, cy, 36, GRID)
        arrow(svg, cx, cy, 36 if scaled else 54, 1.2, BLUE)
        arrow(svg, cx, cy, 36 if scaled else 20, 0.2, ORANGE)
    svg.text(x + 97, y + 66, "→", 16, SOFT, "middle")

    row = [0.6, 1.8, -0.4, 1.1, 0.2, -0.9, 0.8]
    x, y = place[4]
    axes(svg, x, y, w, h, "sink", "orange: weight that goes nowhere")
    step = w / 8
    for i, v in enumerate(softmax([1.4] + row)):
        svg.rect(x + i * step + 3, y + h - v * 300, step - 5, v * 300,
                 BLUE if i else ORANGE)

    x, y = place[5]
    axes(svg, x, y, w, h, "temper", "weights at factors 0.5 and 2")
    step = w / 15
    for part, factor in enumerate((0.5, 2)):
        for i, v in enumerate(softmax([factor * t for t in row])):
            svg.rect(x + (i + 8 * part) * step + 1, y + h - v * 165, step - 2, v * 165,
                     BLUE)
    svg.save(path)


def write_npy(path, shape, values):
    """An array of 32-bit floats, as NumPy would write it."""
    text = "{'descr': '<f4', 'fortran_order': False, 'shape': (%s,), }" % ", ".join(
        map(str, shape))
    text += " " * (-(11 + len(text)) % 64) + "\n"
    path.write_bytes(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text.encode() +
                     struct.pack("<%df" % len(values), *values))


# The mechanisms that are seen best by which keys they show: spec, problem, options.
MAPS = {
    "local": ("1*local(window=4) + 1*local(window=4, dilation=3)", "h2n32d16", []),
    "blocklocal": ("blocklocal(block=8)", "n32d16", []),
    "strided": ("1*strided(stride=6, part=1) + 1*strided(stride=6, part=2) + "
                "1*strided(stride=6)", "h3n32d16c", []),
    "sparse_fixed": ("1*sparse_fixed(stride=8, part=1) + 1*sparse_fixed(stride=8, part=2) + "
                     "1*sparse_fixed(stride=8, summary=2)", "h3n32d16c", []),
    "block": ("block(block=4)", "n32d16", ["--param", "layout=layout.npy"]),
    "global": ("global(window=3, first=2)", "n32d16", ["--param", "global=global.npy"]),
    "bigbird": ("bigbird(block=4)", "n48d16", ["--seed", "1"]),
    "lsh": ("1*lsh(buckets=8) + 1*lsh(buckets=8, rounds=4)", "h2n32d16", []),
    "routing": ("1*routing(clusters=4) + 1*routing(clusters=4, pick=topk)", "h2n32d16", []),
    "segmented": ("1*segmented(length=8) + 1*segmented(length=8, back=1) + "
                  "1*segmented(length=8, integrate=summary)", "h3n32d16c", []),
    "pooled": ("1*pooled(block=3) scale(1) + 1*pooled(block=3, local=1) scale(1) + "
               "1*pooled(block=3, levels=2) scale(1)", "h3n27d16", ["--data", "random"]),
    "xl": ("xl", "n16m40d16c", []),
    "fixed": (" + ".join(f"1*fixed({p})" for p in ("current", "previous", "next", "left",
                                                    "right", "end", "start", "left, words=1")),
              "h8n16d16", ["--param", "words=words.npy"]),
    "lightconv": ("lightconv(width=7)", "n24d16", ["--param", "W=taps.npy"]),
    "dynconv": ("dynconv(width=7)", "n24d16", ["--data", "random"]),
    "synthesizer": ("1*synthesizer(random) + 1*synthesizer(dense) + 1*synthesizer(fdense) + "
                    "1*synthesizer(random+vanilla)", "h4n24d16", ["--data", "random"]),
    "linformer": ("1*linformer(rank=4) scale(1) + 1*linformer(rank=16) scale(1)", "h2n32d16",
                  ["--data", "random"]),
    "lowrank": ("1*lowrank(rank=2) scale(1) + 1*lowrank(rank=8) scale(1)", "h2n32d16",
                ["--data", "random"]),
    "nystrom": ("1*nystrom(landmarks=4) scale(1) + 1*nystrom(landmarks=32, iters=0) scale(1)",
                "h2n32d16", ["--data", "random"]),
    "positions": ("1*softmax rope + 1*softmax alibi(0.125) + 1*softmax t5 + 1*softmax bias + "
                  "1*softmax shaw(clip=8) + 1*softmax txl", "h6n24m48d16c",
                  ["--param", "2.table=t5.npy", "--param", "3.table=bias.npy"]),
}


def maps(foci, out):
    """Pictures by the command itself."""
    with tempfile.TemporaryDirectory() as folder:
        scratch = pathlib.Path(folder)
        layout = [u == t or t == 0 or (u + 2 * t) % 7 == 3 for u in range(8) for t in range(8)]
        write_npy(scratch / "layout.npy", [8, 8], layout)
        write_npy(scratch / "global.npy", [1], [20])
        write_npy(scratch / "t5.npy", [32], [2 - 0.15 * t for t in range(32)])
        write_npy(scratch / "bias.npy", [33], [2 * math.cos(t / 2) for t in range(33)])
        write_npy(scratch / "words.npy", [16], [0, 0, 1, 2, 2, 2, 3, 4, 4, 5, 6, 6, 6, 6, 7, 8])
        write_npy(scratch / "taps.npy", [1, 7], [-1, 0, 1, 2, 1.5, 0.5, -0.5])
        for name, (spec, problem, options) in MAPS.items():
            subprocess.run([foci, "map", "--pattern", spec, problem, "--out",
                            out / f"{name}.svg", *options], cwd=folder, check=True,
                           stdout=subprocess.DEVNULL)


# Those that estimate softmax or take its place at the price of n: what is compared, width.
ERRORS = {
    "linear": (["linear", "linear(kernel=relu)", "linear(kernel=poly)", "linear(kernel=taylor)",
                "linear(kernel=powers)"], 64),
    "cosformer": (["cosformer", "linear(kernel=relu)"], 64),
    "efficient": (["efficient", "linear"], 64),
    "identity": (["identity(norm=n)", "linear"], 64),
    "retention": (["retention(norm=retnet)", "retention(content=0, norm=sum)", "linear"], 64),
    "performer": (["performer(features=64)", "performer(features=256)",
                   "performer(kind=favor++, features=256)", "performer(kind=sderf, features=256)",
                   "performer(kind=aderf, features=256)",
                   "performer(kind=hyp, features=128)", "linear"], 16),
}


def errors(foci, out):
    for name, (specs, dim) in ERRORS.items():
        words = [word for spec in specs for word in ("--error", spec)]
        subprocess.run([foci, "analyse", *words, "--dim", str(dim), "--quiet", "--out",
                        out / f"{name}.svg"], check=True, stdout=subprocess.DEVNULL)


def frozen(foci, out):
    """Products of the columns of frozen projections; and what is left of distances."""
    sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "tests" / "golden"))
    import draws

    width, heads, dim, cell = 64, 4, 8, 7
    side = heads * dim * cell
    svg = Svg(3 * side + 120, side + 110, "products of the columns of frozen projections")
    svg.text(24, 34, "|W'W|", 17, INK, weight="bold")
    svg.text(92, 34, f"{heads} heads of {dim} columns, side by side", 13, SOFT)
    for n, (name, kind, block) in enumerate((("gaussian", "gaussian", 0), ("orthogonal", "orthogonal", 0),
                                             ("orthogonal, sample=block", "orthogonal", 1))):
        x0, w = 30 + n * (side + 30), draws.projection(kind, block, width, heads, dim, 0, 10)
        svg.text(x0, 66, name, 13, INK)
        for i, row in enumerate(abs(w.T @ w)):
            for j, x in enumerate(row):
                svg.rect(x0 + j * cell, 78 + i * cell, cell - 0.5, cell - 0.5, shade(x))
    svg.save(out / "orthogonal.svg")
    words = [word for spec in ("orthogonal", "softmax frozen(gaussian)", "softmax frozen(hadamard)")
             for word in ("--orthogonality", spec)]
    subprocess.run([foci, "analyse", *words, "--width", "512", "--heads", "8", "--draws", "4", "--quiet", "--out",
                    out / "kept.svg"], check=True, stdout=subprocess.DEVNULL)


def concentration(foci, out):
    """Weights of random keys, and one key that matters among them."""
    for name, words in (("concentration", ["--theory", "relu2", "--beta", "-6..6:13", "--gamma", "0.5,1,2,4"]),
                        ("dilution", ["--dilution"])):
        subprocess.run([foci, "analyse", *words, "--quiet", "--out", out / f"{name}.svg"], check=True,
                       stdout=subprocess.DEVNULL)


def beside(foci, out):
    """Two mechanisms on the same data: one less the other, and an estimate."""
    for name, words in (("apart", ["relu2", "--minus", "softmax", "n32d16c"]),
                        ("estimate", ["performer(features=32)", "n24d8", "--scale", "row"])):
        subprocess.run([foci, "map", "--pattern", *words, "--out", out / f"{name}.svg"], check=True,
                       stdout=subprocess.DEVNULL)


def routed(path):
    """Tokens, their gates, and the sets of keys and values they are summed from."""
    draw = random.Random(3)
    svg = Svg(640, 312, "routed: gates of each token, and the routes they weigh")
    svg.text(24, 34, "routed", 17, INK, weight="bold")
    svg.text(104, 34, "each token mixes the outputs of several attentions by its own gates",
             13, SOFT)
    n, cell = 14, 15
    top = 70
    svg.text(60, top - 12, "gates", 12, SOFT, "middle")
    gates = [softmax([draw.gauss(0, 1.6), draw.gauss(0, 1.6)]) for _ in range(n)]
    for i, gate in enumerate(gates):
        for r, g in enumerate(gate):
            svg.rect(44 + 16 * r, top + i * cell, cell - 1, cell - 1, shade(g))
    svg.text(34, top + n * cell / 2, "i", 13, SOFT, "end")
    for r in range(2):
        x0 = 140 + 250 * r
        svg.text(x0 - 28, top + n * cell / 2 + 6, "×" if r == 0 else "+", 18, SOFT, "middle")
        svg.text(x0, top - 12, f"route {r + 1}: own keys and values", 12, SOFT)
        for i in range(n):
            row = softmax([draw.gauss(0, 1.3) for _ in range(n)])
            for j, w in enumerate(row):
                svg.rect(x0 + j * cell, top + i * cell, cell - 1, cell - 1,
                         shade(w * gates[i][r] / 0.4))
    svg.text(34 + 350, 296, "rows shaded by weight × gate", 11, SOFT, "middle")
    svg.save(path)


def flow(svg, x0, y0, x1, y1, stroke):
    """A straight line with a head."""
    svg.line([(x0, y0), (x1, y1)], stroke, 2)
    back = math.atan2(y1 - y0, x1 - x0) + math.pi
    for turn in (-0.4, 0.4):
        svg.line([(x1, y1), (x1 + 9 * math.cos(back + turn), y1 + 9 * math.sin(back + turn))],
                 stroke, 2)


def memformer(path):
    """Segments in a row, slots above them, what is read and what is written."""
    svg = Svg(700, 290, "memformer: each segment reads the slots, and then writes them")
    svg.text(24, 34, "memformer", 17, INK, weight="bold")
    svg.text(148, 34, "tokens read the slots as the segments before left them", 13, SOFT)
    slots, tokens, cell, first, step = 4, 6, 18, 44, 224
    top, low = 76, 196
    for u in range(3):
        x = first + u * step
        svg.text(x, top - 10, f"slots before segment {u + 1}", 12, SOFT)
        for t in range(slots):
            svg.rect(x + t * (cell + 2), top, cell, cell, shade(0.25 + 0.18 * t))
        for t in range(tokens):
            svg.rect(x + t * (cell + 2), low, cell, cell, GRID)
        svg.text(x, low + cell + 18, f"tokens of segment {u + 1}", 12, SOFT)
        flow(svg, x + 30, top + cell + 6, x + 30, low - 6, BLUE)
        svg.text(x + 38, (top + low) / 2 + 2, "read", 12, BLUE)
        if u < 2:
            flow(svg, x + 96, low - 6, x + step - 8, top + cell + 6, ORANGE)
            svg.text(x + 150, (top + low) / 2 + 34, "write", 12, ORANGE)
            flow(svg, x + slots * (cell + 2) + 6, top + cell / 2, x + step - 8,
                 top + cell / 2, ORANGE)
    svg.text(24, 258, "read: softmax over the slots.  write: each slot attends to itself and to "
             "the segment's tokens,", 12, SOFT)
    svg.text(24, 274, "is drawn towards its own beta, and goes on with length one", 12, SOFT)
    svg.save(path)


def main():
    foci, out = pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2]).resolve()
    mechanism(out / "softmax.svg", "softmax", softmax, "rows of weights sum to one")
    mechanism(out / "l2norm.svg", "l2norm", l2norm, "squares of weights sum to one")
    mechanism(out / "relu2.svg", "relu2", relu2, "negative logits weigh nothing at all")
    modifiers(out / "modifiers.svg")
    routed(out / "routed.svg")
    memformer(out / "memformer.svg")
    maps(foci, out)
    errors(foci, out)
    frozen(foci, out.parent)
    concentration(foci, out.parent)
    beside(foci, out.parent)


if __name__ == "__main__":
    main()
