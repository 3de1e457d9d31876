"""Reports as tables: on the terminal, in docs/measured.md and in the READMEs.

Several reports of one machine, of other groups each, are one.
"""
import pathlib

ROOT = pathlib.Path(__file__).resolve().parents[2]

TITLES = {
    "forward": "Attention, forward", "widths": "Attention, other widths",
    "backward": "Attention, backward", "f32": "Attention in f32",
    "fast": "f32 tensors, bf16 products (`fast`)", "small": "Small calls",
    "wide": "All threads", "decode": "Decoding", "product": "Products in bf16",
    "product-f32": "Products in f32", "layer": "Layers",
    "layer-own": "Layers against our own", "linear": "Linear attention in bf16",
    "linear-f32": "Linear attention in f32", "sparse": "Sparse attention, forward",
    "sparse-backward": "Sparse attention, backward",
    "sparse-more": "More sparse attention, forward",
    "sparse-more-backward": "More sparse attention, backward",
    "routed": "Sparse attention against softmax",
    "masks": "Masks, against FlexAttention and a dense mask",
    "train": "Training steps", "generate": "Generation, one sequence",
    "beam": "Translation by beam search",
    "package-call": "Calls from PyTorch", "package": "`foci.torch`, bf16",
    "transformers": "Models of transformers, one sequence",
    "positions": "Positions and caps, against softmax without",
}


def figure(value, unit):
    if unit == "us":
        return f"{value:.1f}"
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"


def percent(share):
    return "" if share is None else f"{100 * share:.0f} %"


def with_floor(text, floor, form):
    return text if floor is None else f"{text} (≥ {form.format(floor)})"


def table(rows, floors):
    unit, shares = rows[0]["unit"], rows[0]["share_of"]
    head = ["case", "against", f"foci {unit}", f"other {unit}", "ratio"]
    lines = [head + ([f"of the {shares}"] if shares else []),
             ["---"] * 2 + ["---:"] * (len(head) - 2 + bool(shares))]
    for r in rows:
        ratio = f"{r['ratio']:.2f}"
        share = percent(r["share"])
        if floors:
            ratio = with_floor(ratio, r["ratio_floor"], "{:.2f}")
            share = with_floor(share, r["share_floor"] and 100 * r["share_floor"],
                               "{:.0f} %")
        lines.append([f"`{r['case']}`" + ("" if r["agrees"] else " **differs**"),
                      r["against"], figure(r["rate"], unit), figure(r["peer_rate"], unit),
                      ratio] + ([share] if shares else []))
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def machine(report):
    """The line that says where it was measured."""
    fast = report.get("fast_transformers")
    parts = [report["cpu"], f"{report['threads']} threads", f"level {report['level']}",
             f"foci {report['foci']}", f"PyTorch {report['torch']}",
             f"fast-transformers {fast}" if fast else None, report.get("peer_note")]
    return ", ".join(part for part in parts if part)


def groups(report):
    for group in dict.fromkeys(r["group"] for r in report["cases"]):
        yield group, [r for r in report["cases"] if r["group"] == group]


def text(report):
    """What the terminal shows, with what the project asks of itself."""
    parts = [machine(report) + "."]
    parts += [f"{TITLES[group]}\n\n{table(rows, True)}" for group, rows in groups(report)]
    return "\n\n".join(parts) + "\n"


def merged(reports):
    """One report for each machine and number of threads; a later one of the same case
    replaces the earlier one."""
    out = {}
    for report in reports:
        to = out.setdefault((report["cpu"], report["threads"]), {**report, "cases": []})
        cases = {(r["group"], r["case"], r["against"]): r
                 for r in to["cases"] + report["cases"]}
        to.update({**report, "cases": sorted(
            cases.values(), key=lambda r: list(TITLES).index(r["group"]))})
    return list(out.values())


MEASURED = """# Measured

Made by `make bench-peers` and `bench/peers/run.py --publish`; not to be edited by hand.

Both libraries run in one process and take turns. Figures are medians; the ratio is the
median of the other's time over ours in neighbouring repetitions. The share is that of our
best repetition in what the machine can do, probed before and after the case
(`foci_ctx_measure()`): long products from registers, or reading memory. The roofline of
linear attention is the larger of its products at that peak and of its tensors at the rate
of copying. `f32fast` and sparse attention stand beside our own: "share of softmax" is
softmax on all pairs times the share of tiles that are seen, plus one copy of the tensors,
and its ratio is how near that we come. Linear attention stands beside batched products of
chunks in PyTorch, the fastest of several lengths and types (chunked); layers, with their
projections, beside `torch.nn.MultiheadAttention` on its fast path and beside one written
around PyTorch's fused attention.
"""


def measured(reports):
    parts = [MEASURED.strip()]
    for report in reports:
        parts.append(f"## {report['cpu']}, {report['threads']} threads\n\n"
                     f"{machine(report)}.")
        parts += [f"### {TITLES[group]}\n\n{table(rows, False)}"
                  for group, rows in groups(report)]
    return "\n\n".join(parts) + "\n"


# The rows of the READMEs: group, case, against, and what they are called.
FRONT = (
    ("forward", "softmax/h8n2048d64/bf16/fwd", "PyTorch",
     "softmax, N 2048, d 64, bf16", "softmax，N 2048，d 64，bf16"),
    ("forward", "softmax/h8n2048d128c/bf16/fwd", "PyTorch",
     "the same, d 128, causal", "同上，d 128，因果"),
    ("backward", "softmax/h8n2048d64/bf16/bwd", "PyTorch",
     "backward, d 64, bf16", "反向，d 64，bf16"),
    ("f32", "softmax/h8n2048d64/f32/fwd", "PyTorch",
     "softmax, N 2048, d 64, f32", "softmax，N 2048，d 64，f32"),
    ("decode", "softmax/b8h32k8n1m4096d128/bf16/step", "PyTorch",
     "decoding, 8 sequences, 32/8 heads", "解码，8 个序列，32/8 头"),
    ("linear", "linear/h8n65536d64c/bf16/fwd", "chunked",
     "linear, causal, N 65536, bf16", "linear，因果，N 65536，bf16"),
    ("layer", "softmax/b4h8n1024w512/bf16/both", "PyTorch layer",
     "layer, forward and backward, bf16", "层，前向加反向，bf16"),
    ("product", "product/m4096n512k512/bf16/nn", "PyTorch",
     "product 4096 x 512 x 512, bf16", "矩阵乘 4096 x 512 x 512，bf16"),
)

WORDS = {
    "en": {"case": "case", "ratio": "x PyTorch", "share": "of peak",
           "note": "{} threads each; medians of alternating runs; the share is of the "
                   "measured peak of products, of reading memory (decoding) or of the "
                   "roofline (linear). All cases: [docs/measured.md](docs/measured.md); "
                   "repeat with `make bench-peers`."},
    "zh": {"case": "用例", "ratio": "PyTorch 的倍数", "share": "占峰值",
           "note": "各 {} 线程；交替运行的中位数；占比相对实测的矩阵乘峰值、读内存速率（解码）"
                   "或屋顶线（linear）。全部用例见 [docs/measured.md](docs/measured.md)，"
                   "用 `make bench-peers` 复现。"},
}


def front(reports, language):
    """A row for each case, three columns for each machine."""
    words = WORDS[language]
    head, lines = [words["case"]], []
    for report in reports:
        head += [f"{report['cpu']}", words["ratio"], words["share"]]
    for group, name, against, *titles in FRONT:
        line = [titles[language == "zh"]]
        for report in reports:
            found = [r for r in report["cases"]
                     if (r["group"], r["case"], r["against"]) == (group, name, against)]
            if found:
                r, = found
                line += [f"{figure(r['rate'], r['unit'])} {r['unit']}",
                         f"{r['ratio']:.2f}", percent(r["share"])]
            else:
                line += [""] * 3
        lines.append(line)
    rows = [head, ["---"] + ["---:"] * (len(head) - 1)] + lines
    return ("\n".join("| " + " | ".join(row) + " |" for row in rows) + "\n\n" +
            words["note"].format(reports[0]["threads"]) + "\n")


def rewrite(path, language, reports):
    """The part of a README between the lines that mark it."""
    begin, end = "<!-- measured: begin -->\n", "<!-- measured: end -->"
    text = path.read_text(encoding="utf-8")
    if begin not in text or end not in text:
        raise SystemExit(f"{path}: no lines {begin.strip()} and {end}")
    head, rest = text.split(begin, 1)
    tail = rest.split(end, 1)[1]
    path.write_text(head + begin + front(reports, language) + end + tail,
                    encoding="utf-8")


def publish(reports):
    """docs/measured.md of all reports; the READMEs of those with two threads."""
    reports = merged(reports)
    two = [r for r in reports if r["threads"] == 2]
    (ROOT / "docs/measured.md").write_text(measured(reports), encoding="utf-8")
    for name, language in (("README.md", "en"), ("README.zh-CN.md", "zh")):
        rewrite(ROOT / name, language, two)
