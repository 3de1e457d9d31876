#!/usr/bin/env python3
"""Side by side with PyTorch: attention, decoding, products, layers, training.

How it is timed is said in compare.py; what is asked of the machine, in peer.py.
"""
import argparse
import importlib
import importlib.metadata
import json
import os
import pathlib
import platform
import re
import sys

import peer
import tables

ROOT = pathlib.Path(__file__).resolve().parents[2]
MODULES = ("attention", "decode", "product", "layer", "linear", "sparse", "training",
           "generation", "package")


def groups():
    """{name: function that makes its cases}, of all modules."""
    out = {}
    for name in MODULES:
        out.update(importlib.import_module(name).GROUPS)
    return out


# Virtual machines name no more than the brand.
CORES = {("GenuineIntel", 6, 143): "Sapphire Rapids", ("GenuineIntel", 6, 207): "Emerald Rapids",
         ("AuthenticAMD", 25, 17): "Zen 4", ("AuthenticAMD", 26, 2): "Zen 5"}


def cpu_name():
    try:
        text = open("/proc/cpuinfo", encoding="utf-8").read().split("\n\n")[0]
    except OSError:
        return platform.processor() or platform.machine()
    cpu = dict(re.findall(r"^(.*?)\s*: (.*)$", text, re.MULTILINE))
    name = re.sub(r"\((R|TM)\)| Processor$", "", cpu.get("model name", platform.machine()))
    core = CORES.get((cpu.get("vendor_id"), int(cpu.get("cpu family", 0)),
                      int(cpu.get("model", 0))))
    return f"{name} ({core})" if core else name


def version(package):
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def problems(report):
    """What makes the report unfit, one sentence each."""
    for r in report["cases"]:
        name = f"{r['case']} against {r['against']}"
        if not r["agrees"]:
            yield f"{name}: results differ by {r['difference']:.1e}"
        for floor, got in (("ratio_floor", "ratio"), ("share_floor", "share")):
            if r[floor] is not None and r[got] < r[floor]:
                yield f"{name}: {got} {r[got]:.2f} is below {r[floor]:.2f}"
        if r["share"] is not None and r["share"] > 1:
            yield f"{name}: {100 * r['share']:.0f} % of the {r['share_of']}"
        for who in ("cores", "peer_cores"):
            if r["unit"] != "us" and r[who] < 0.75 * report["threads"]:
                yield (f"{name}: {who} {r[who]:.1f} of {report['threads']}: is the "
                       "machine busy with something else?")


# Steps and how far losses may be apart: nats in f32, shares in bf16.
LOSSES = {"f32": (20, 1e-4), "bf16": (300, 0.02)}


def losses(args):
    """Whether both sides learn alike from the same weights and batches."""
    peer.settle()

    import torch

    import libfoci
    import training

    torch.set_num_threads(args.threads)
    context = libfoci.Context(str(args.lib), args.threads)
    good = True
    for dtype, (steps, bound) in LOSSES.items():
        pairs = training.compare_losses(context, dtype, steps)
        apart = [abs(a - b) / (b if dtype == "bf16" else 1) for a, b in pairs]
        for at in sorted({0, 1, steps // 4, steps // 2, steps - 1}):
            print(f"{dtype} step {at + 1}: loss {pairs[at][0]:.6f}, PyTorch {pairs[at][1]:.6f}")
        print(f"{dtype}: largest difference in {steps} steps {max(apart):.2g} (bound {bound:g})")
        good = good and max(apart) <= bound
    return 0 if good else 1


def measure(args):
    # Both OpenMP runtimes read this when they are loaded: spin for less than the pause
    # between the two sides.
    os.environ.setdefault("GOMP_SPINCOUNT", "20000")
    note = peer.settle()

    import torch

    import compare
    import libfoci

    torch.set_num_threads(args.threads)
    context = libfoci.Context(str(args.lib), args.threads)
    if torch.get_num_threads() != context.threads:
        sys.exit(f"threads: {torch.get_num_threads()} and {context.threads}")
    known = groups()
    asked = args.group or [name for name in known if name != "wide"]
    if unknown := set(asked) - set(known):
        sys.exit(f"no groups {', '.join(unknown)}; there are {', '.join(known)}")

    report = {"foci": context.version, "torch": torch.__version__,
              "fast_transformers": version("pytorch-fast-transformers"),
              "threads": context.threads, "cpu": cpu_name(), "level": context.level,
              "peer_note": note, "cases": []}
    print(tables.machine(report), file=sys.stderr, flush=True)
    comparison = compare.Comparison(context, args.rounds, args.seconds)
    for group in asked:
        for case in known[group]():
            if not re.search(args.case, case.name):
                continue
            r = comparison.compare(group, case)
            report["cases"].append(r)
            share = f", {100 * r['share']:.0f} % of the {r['share_of']}" if r["share"] else ""
            print(f"{r['case']} : {r['against']}: {r['rate']:.4g} : {r['peer_rate']:.4g} "
                  f"{r['unit']}, ratio {r['ratio']:.2f}{share}, difference "
                  f"{r['difference']:.1e}", file=sys.stderr, flush=True)
            args.json.write_text(json.dumps(report, indent=1) + "\n")
    return report


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--lib", default=ROOT / "build/libfoci.so")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=10,
                        help="repetitions, at least, for each case")
    parser.add_argument("--seconds", type=float, default=2,
                        help="of repetitions, at least, for each case")
    parser.add_argument("--group", action="append", default=[],
                        help="a group of cases (may be given again); all but `wide` "
                             "otherwise, which is for many threads")
    parser.add_argument("--case", default="", help="regular expression on names of cases")
    parser.add_argument("--list", action="store_true", help="name groups and cases")
    parser.add_argument("--json", type=pathlib.Path, default=ROOT / "build/peers.json",
                        help="where the report goes")
    parser.add_argument("--losses", action="store_true",
                        help="train a model beside PyTorch's and compare the losses")
    parser.add_argument("--publish", nargs="+", type=pathlib.Path, metavar="JSON",
                        help="measure nothing; write docs/measured.md and the tables of "
                             "the READMEs from these reports")
    args = parser.parse_args()

    if args.publish:
        tables.publish([json.loads(path.read_text()) for path in args.publish])
        return 0
    if args.list:
        for group, make in groups().items():
            print(group, *(f"    {case.name} : {case.peer}" for case in make()), sep="\n")
        return 0
    if args.losses:
        return losses(args)
    report = measure(args)
    print(tables.text(report))
    bad = list(problems(report))
    print("\n".join(bad))
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
