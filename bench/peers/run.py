#!/usr/bin/env python3
"""Side by side with PyTorch's scaled_dot_product_attention.

Both libraries are in this process, work on the same tensors with the same number of
threads and take turns, repetition by repetition, so that both meet the same machine.
Between turns we sleep until the threads of the one that just ran have stopped
spinning.  A ratio is PyTorch's time over ours in neighbouring repetitions; the median
of all ratios counts.  The share of the peak is that of our best repetition against
the better of two peak probes, one before and one after the case.

FLOP: 4 N^2 d for each head forward, half of that when causal; backward 2.5 times as
much.
"""
import argparse
import importlib.metadata
import json
import os
import pathlib
import platform
import re
import statistics
import sys
import time
from dataclasses import asdict, dataclass

# Both OpenMP runtimes read this when they are loaded: spin for less than the pause.
os.environ.setdefault("GOMP_SPINCOUNT", "20000")
PAUSE = 0.004

import torch
import torch.nn.functional as F

import decode
import layer
import libfoci
import linear
import product
import sparse
from attend import Foci

ROOT = pathlib.Path(__file__).resolve().parents[2]


@dataclass
class Case:
    dtype: str  # f32, f32fast, bf16
    backward: bool
    n: int
    d: int
    causal: bool
    heads: int = 8
    ratio_floor: float = None  # what the project asks of itself
    share_floor: float = None

    @property
    def name(self):
        return (f"softmax/h{self.heads}n{self.n}d{self.d}{'c' * self.causal}"
                f"/{self.dtype}/{'bwd' if self.backward else 'fwd'}")

    unit = "GFLOP/s"

    def peak(self, machine):
        return machine.f32_flops if self.dtype == "f32" else machine.bf16_flops

    def sides(self, context):
        kind = torch.bfloat16 if self.dtype == "bf16" else torch.float32
        shape = (1, self.heads, self.n, self.d)
        make = torch.Generator().manual_seed(self.n + self.d)
        tensors = [torch.randn(shape, generator=make).to(kind) for _ in range(4)]
        how = {"causal": self.causal, "backward": self.backward}
        ours = Foci(context, "softmax", tensors, self.dtype, **how)
        if self.dtype == "f32fast":  # against our own strict arithmetic
            return ours, Foci(context, "softmax", tensors, "f32", **how)
        return ours, Torch(self, *tensors)

    @property
    def work(self):
        forward = 4 * self.heads * self.n * self.n * self.d
        return forward * (2.5 if self.backward else 1) / (2 if self.causal else 1)


def cases():
    """What is measured, with the floors the project sets itself.  Shares are of the
    peak of bf16 products, on AMX where the CPU has it."""
    both = [False, True]
    out = []

    def add(dtype, backward, n, d, causal, ratio, share=None, heads=8):
        out.append(Case(dtype, backward, n, d, causal, heads, ratio, share))

    for c in both:
        add("bf16", False, 2048, 64, c, (2.2, 2.5)[c], None if c else 0.28)
        add("bf16", False, 2048, 128, c, (1.7, 2.0)[c], None if c else 0.32)
        for d in 64, 128:
            add("bf16", False, 512, d, c, (1.5, 2.0)[c])
        add("bf16", False, 8192, 128, c, 1.5, heads=2)
    for d in 72, 80, 96:
        add("bf16", False, 2048, d, False, 3)
    for c in both:
        add("bf16", True, 2048, 64, c, 3, None if c else 0.20)
        add("bf16", True, 2048, 128, c, 2.5, None if c else 0.20)
    for c in both:
        add("f32", False, 2048, 64, c, (1.3, 1.4)[c])
        add("f32", False, 2048, 128, c, (1.15, 1.4)[c])
    for c in both:
        add("f32", True, 2048, 64, c, 1.15)
        add("f32", True, 2048, 128, c, 1.15)
    for d in 64, 128:
        add("f32fast", False, 2048, d, False, 2.5)
    return out


class Torch:
    """The same case through PyTorch."""

    def __init__(self, case, q, k, v, dout):
        self.case, self.dout = case, dout
        self.inputs = [t.detach().requires_grad_(case.backward) for t in (q, k, v)]
        self.o = self.attend()

    def attend(self):
        with torch.set_grad_enabled(self.case.backward):
            return F.scaled_dot_product_attention(*self.inputs,
                                                  is_causal=self.case.causal)

    def prepare(self):
        for t in self.inputs:
            t.grad = None

    def run(self):
        if self.case.backward:
            self.o.backward(self.dout, retain_graph=True)
        else:
            self.o = self.attend()

    def results(self):
        if self.case.backward:
            return [t.grad for t in self.inputs]
        return [self.o]

    def close(self):
        pass


def timed(side):
    """Seconds of one repetition."""
    side.prepare()
    time.sleep(PAUSE)
    begin = time.perf_counter()
    side.run()
    return time.perf_counter() - begin


def busy(side):
    """How many cores it keeps busy, from repetitions long enough for the kernel's
    count of processor time; these warm caches and clocks too."""
    time.sleep(PAUSE)
    cpu, begin = time.process_time(), time.perf_counter()
    while (wall := time.perf_counter() - begin) < 0.1:
        side.prepare()
        side.run()
    return (time.process_time() - cpu) / wall


def probe(context):
    time.sleep(PAUSE)
    return context.measure()


def difference(ours, theirs):
    """The largest relative RMS difference among the results."""
    worst = 0.0
    for a, b in zip(ours, theirs):
        a, b = a.detach().double(), b.detach().double()
        worst = max(worst, ((a - b).norm() / b.norm()).item())
    return worst


TOLERANCE = {("bf16", False): 1e-2, ("bf16", True): 2e-2, ("f32", False): 1e-5,
             ("f32", True): 1e-4, ("f32fast", False): 1e-2, ("f32fast", True): 2e-2}


def peer_seconds(case, seconds, ours):
    """The time a case is measured against; as a rule that of the other side."""
    return case.peer_seconds(seconds, ours) if hasattr(case, "peer_seconds") else seconds


def compare(context, case, reps, least):
    ours, theirs = case.sides(context)
    cores = [busy(side) for side in (ours, theirs)]
    comparable = getattr(case, "comparable", True)
    error = difference(ours.results(), theirs.results()) if comparable else 0
    reps, least = getattr(case, "least", reps), getattr(case, "seconds", least)

    before = probe(context)
    case.peak(before)
    ratios, a, b = [], [], []
    begin = time.perf_counter()
    while len(ratios) < reps or time.perf_counter() - begin < least:
        sides = (ours, theirs) if len(ratios) % 2 == 0 else (theirs, ours)
        seconds = {side: timed(side) for side in sides}
        a.append(seconds[ours])
        b.append(peer_seconds(case, seconds[theirs], ours))
        ratios.append(b[-1] / a[-1])
    after = probe(context)

    peak = max(case.peak(before), case.peak(after))
    text = ours.plan.describe()
    for side in ours, theirs:
        side.close()
    return {
        "case": case.name,
        **{k: v for k, v in asdict(case).items() if k != "lists"},
        "reps": len(ratios),
        "ratio": statistics.median(ratios),
        "ratio_quartiles": statistics.quantiles(ratios * 2, n=4),
        "unit": case.unit,
        "rate": case.work / statistics.median(a) / 1e9,
        "best_rate": case.work / min(a) / 1e9,
        "peer_rate": case.work / statistics.median(b) / 1e9,
        "peer_best_rate": case.work / min(b) / 1e9,
        "peak_rate": peak / 1e9,
        "share": case.work / min(a) / peak,
        "difference": error,
        "agrees": error <= TOLERANCE[case.dtype, case.backward],
        "cores": cores[0],
        "peer_cores": cores[1],
        "plan": text,
    }


HEADS = {
    "en": ("case", "foci {}", "PyTorch {}", "ratio", "share of peak"),
    "zh": ("用例", "foci {}", "PyTorch {}", "倍数", "占峰值"),
}
NOTES = {
    "en": "Medians; ratio: median of PyTorch's time over ours; share: best repetition "
          "over the measured peak of products, or of reading memory. f32fast is compared with our own f32; "
          "sparse attention with our own softmax on all pairs, with the share of it that its tiles are, "
          "with FlexAttention (flex) and with PyTorch's attention under a dense mask; "
          "linear attention with batched products per chunk in PyTorch (chunked), the fastest of "
          "several chunk lengths and types{fast}; layers, with their projections, with "
          "torch.nn.MultiheadAttention on its fast path, with one written in PyTorch around its fused "
          "attention, and with our own of other mechanisms. "
          "{threads} threads, PyTorch {torch}, {cpu}. Repeat with `make bench-peers`.",
    "zh": "中位数；倍数为 PyTorch 用时与 foci 用时之比的中位数；占峰值为最好一次相对实测"
          "矩阵乘或读内存峰值的比例。f32fast 与 foci 自身的 f32 相比；稀疏注意力与 foci 自身的全对 "
          "softmax、按图块占比折算的 softmax 时间、FlexAttention（flex）及 PyTorch 稠密掩码注意力相比；"
          "线性注意力与 PyTorch 中按块批量矩阵乘的实现（chunked，取多种块长与类型中最快者）相比{fast}；"
          "含投影的层与走快速路径的 torch.nn.MultiheadAttention、以融合注意力手写的 PyTorch 层及 foci 自身的其他机制相比。{threads} 线程，PyTorch "
          "{torch}，{cpu}。用 `make bench-peers` 复现。",
}


# Beside the chunks: fast-transformers, built or not.
FAST = {
    "en": (", and with fast-transformers {}", "; fast-transformers was not there to compare with"),
    "zh": ("，并与 fast-transformers {} 相比", "；未安装 fast-transformers，故未与之比较"),
}


def note(report, language):
    version = report.get("fast_transformers")
    fast = FAST[language][0 if version else 1].format(version)
    return NOTES[language].format(**report, fast=fast)


def fast_version():
    return importlib.metadata.version("pytorch-fast-transformers") if linear.causal_dot_product else None


def with_floor(text, floor, form):
    return text if floor is None else f"{text} (≥ {form.format(floor)})"


AGAINST = {
    "en": "| case | against | foci {0} | other {0} | ratio |",
    "zh": "| 用例 | 对照 | foci {0} | 对照 {0} | 倍数 |",
}


def against_table(cases, unit, language, floors):
    lines = [AGAINST[language].format(unit), "|---|---|---:|---:|---:|"]
    for r in cases:
        ratio = f"{r['ratio']:.2f}"
        if floors:
            ratio = with_floor(ratio, r["ratio_floor"], "{:.2f}")
        name, against = r["case"].split(" : ")
        lines.append(f"| `{name}`{'' if r['agrees'] else ' **differs**'} | {against} | "
                     f"{r['rate']:.3g} | {r['peer_rate']:.3g} | {ratio} |")
    return "\n".join(lines)


def table(cases, unit, language, floors):
    if unit in (sparse.Case.unit, linear.Case.unit, layer.Case.unit):
        return against_table(cases, unit, language, floors)
    head = " | ".join(HEADS[language]).format(unit, unit)
    lines = [f"| {head} |", "|---|---:|---:|---:|---:|"]
    for r in cases:
        ratio, share = f"{r['ratio']:.2f}", f"{100 * r['share']:.0f} %"
        if floors:
            ratio = with_floor(ratio, r["ratio_floor"], "{:.2f}")
            share = with_floor(share, r["share_floor"] and 100 * r["share_floor"],
                               "{:.0f} %")
        name = f"`{r['case']}`" + ("" if r["agrees"] else " **differs**")
        form = "{:.1f}" if unit == "GB/s" else "{:.0f}"
        lines.append(f"| {name} | {form.format(r['rate'])} | "
                     f"{form.format(r['peer_rate'])} | {ratio} | {share} |")
    return "\n".join(lines)


def markdown(report, language="en", floors=True):
    units = dict.fromkeys(r["unit"] for r in report["cases"])
    tables = [table([r for r in report["cases"] if r["unit"] == unit], unit, language,
                    floors) for unit in units]
    return "\n\n".join(tables + [note(report, language)]) + "\n"


def rewrite_readme(path, language, report):
    """Each unit has its table; those that were not measured stay."""
    text = path.read_text(encoding="utf-8")
    for unit in dict.fromkeys(r["unit"] for r in report["cases"]):
        begin, end = f"<!-- peers {unit}: begin -->\n", f"<!-- peers {unit}: end -->"
        if begin not in text or end not in text:
            sys.exit(f"{path}: no lines {begin.strip()} and {end}")
        head, rest = text.split(begin, 1)
        tail = rest.split(end, 1)[1]
        rows = [r for r in report["cases"] if r["unit"] == unit]
        text = head + begin + table(rows, unit, language, floors=False) + "\n" + end + tail
    begin, end = "<!-- peers: note -->\n", "<!-- peers: end -->"
    head, rest = text.split(begin, 1)
    text = head + begin + note(report, language) + "\n" + end + rest.split(end, 1)[1]
    path.write_text(text, encoding="utf-8")


def cpu_name():
    try:
        for line in open("/proc/cpuinfo", encoding="utf-8"):
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def problems(report):
    """What makes the report unfit, one sentence each."""
    for r in report["cases"]:
        if not r["agrees"]:
            yield f"{r['case']}: results differ by {r['difference']:.1e}"
        for floor, got in (("ratio_floor", "ratio"), ("share_floor", "share")):
            if r[floor] is not None and r[got] < r[floor]:
                yield f"{r['case']}: {got} {r[got]:.2f} is below {r[floor]:.2f}"
        for who in ("cores", "peer_cores"):
            if r[who] < 0.75 * report["threads"]:
                yield (f"{r['case']}: {who} {r[who]:.1f} of {report['threads']}: is "
                       "the machine busy with something else?")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--lib", default=ROOT / "build/libfoci.so")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--reps", type=int, default=30, help="at least, for each case")
    parser.add_argument("--time", type=float, default=2, help="seconds, at least")
    parser.add_argument("--only", default="", help="regular expression on case names")
    parser.add_argument("--json", type=pathlib.Path, default=ROOT / "build/peers.json")
    parser.add_argument("--from-json", action="store_true",
                        help="measure nothing, show what --json has")
    parser.add_argument("--readme", action="store_true",
                        help="put the table into README.md and README.zh-CN.md")
    args = parser.parse_args()

    if args.from_json:
        report = json.loads(args.json.read_text())
    else:
        torch.set_num_threads(args.threads)
        context = libfoci.Context(str(args.lib), args.threads)
        if torch.get_num_threads() != context.threads:
            sys.exit(f"threads: {torch.get_num_threads()} and {context.threads}")
        report = {"foci": context.version, "torch": torch.__version__,
                  "fast_transformers": fast_version(), "threads": context.threads,
                  "cpu": cpu_name(), "cases": []}
        for case in (cases() + decode.cases() + sparse.cases() + linear.cases() +
                     product.cases() + layer.cases()):
            if re.search(args.only, case.name):
                r = compare(context, case, args.reps, args.time)
                report["cases"].append(r)
                print(f"{case.name}: {r['rate']:.1f} : {r['peer_rate']:.1f} {r['unit']}, "
                      f"ratio {r['ratio']:.2f}, share {100 * r['share']:.0f} %, "
                      f"difference {r['difference']:.1e}", file=sys.stderr, flush=True)
        args.json.write_text(json.dumps(report, indent=1) + "\n")

    print(markdown(report))
    if args.readme:
        rewrite_readme(ROOT / "README.md", "en", report)
        rewrite_readme(ROOT / "README.zh-CN.md", "zh", report)
    bad = list(problems(report))
    print("\n".join(bad))
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
