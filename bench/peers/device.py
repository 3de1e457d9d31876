"""Exact attention on a CUDA device: against double precision, and against PyTorch's cuDNN
attention, flash attention 2 and FlexAttention in shuffled rounds on random data.

    python bench/peers/device.py --lib build/libfoci.so check forward backward ...

Parts: check, spoilt, forward, widths, sparse, backward, decode, launch.  Times are medians
of rounds; forward counts 4 N^2 d operations for each head, half of it where causal, backward
2.5 times that.
"""
import argparse
import ctypes as c
import json
import math
import random
import statistics

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

import libfoci

CUDNN, FLASH = SDPBackend.CUDNN_ATTENTION, SDPBackend.FLASH_ATTENTION


class Options(c.Structure):
    _fields_ = libfoci.Options._fields_ + [("device", c.c_char_p)]


class IO(c.Structure):
    _fields_ = libfoci.IO._fields_ + [("dropout_seed", c.c_uint64), ("stream", c.c_void_p)]


class Grads(c.Structure):
    _fields_ = libfoci.Grads._fields_ + [("dbias", c.c_void_p), ("skip_unread", c.c_int)]


class Context(libfoci.Context):
    def __init__(self, path):
        self.lib = lib = c.CDLL(path)
        lib.foci_errmsg.restype = c.c_char_p
        for name in ("foci_plan_work_bytes", "foci_plan_saved_bytes"):
            getattr(lib, name).restype = c.c_size_t
        lib.foci_plan_param_floats.restype = c.c_int64
        self.ctx = c.c_void_p()
        options = libfoci.sized(Options, threads=1, device=b"cuda")
        self.check(lib.foci_ctx_create(c.byref(options), c.byref(self.ctx)))


def layout(x):
    """Of a tensor [batch][head][row][dim]."""
    return libfoci.Layout(batch=x.stride(0), head=x.stride(1), row=x.stride(2))


class Foci:
    """One plan, with tensors [batch][head][row][dim] on the device."""

    def __init__(self, context, spec, q, k, v, causal=False, train=False, docs=None, lens=None):
        b, h, n, d = q.shape
        self.o = torch.empty((b, h, n, v.shape[3]), device=q.device, dtype=q.dtype)
        dtype = {torch.bfloat16: 1, torch.float16: 2, torch.float32: 0}[q.dtype]
        problem = libfoci.sized(
            libfoci.Problem, dtype=dtype, flags=causal * 1 | train * 2, batch=b, heads=h,
            kv_heads=k.shape[1], len_q=n, len_k=k.shape[2], dim_qk=d, dim_v=v.shape[3],
            q=layout(q), k=layout(k), v=layout(v), o=layout(self.o),
            max_docs=len(docs) - 1 if docs else 0)
        self.plan = context.plan(spec, problem)
        self.tensors = (q, k, v)
        self.grads = [torch.empty_like(x) for x in (q, k, v)]
        bytes_of = dict(dtype=torch.uint8, device=q.device)
        self.work = torch.empty(self.plan.work_bytes + 256, **bytes_of)
        self.saved = torch.empty(self.plan.saved_bytes + 256, **bytes_of)
        n_params = context.lib.foci_plan_param_floats(self.plan.plan)
        floats = (c.c_float * max(n_params, 1))()
        context.check(context.lib.foci_params_init(self.plan.plan, c.c_uint64(1), floats))
        self.params = torch.tensor(list(floats), device=q.device)
        ints = dict(dtype=torch.int32, device=q.device)
        self.docs = torch.tensor(docs or [0], **ints)
        self.lens = torch.tensor(lens or [0], **ints)
        self.lse = torch.empty((b, h, n), device=q.device)
        self.io = libfoci.sized(
            IO, q=q.data_ptr(), k=k.data_ptr(), v=v.data_ptr(), o=self.o.data_ptr(),
            work=self.work.data_ptr(), params=self.params.data_ptr(),
            saved=self.saved.data_ptr() if train else None, lse=self.lse.data_ptr(),
            docs=self.docs.data_ptr() if docs else None,
            n_docs=len(docs) - 1 if docs else 0,
            len_q=self.lens.data_ptr() if lens else None,
            len_k=self.lens.data_ptr() if lens else None)

    def aim(self):
        self.io.stream = torch.cuda.current_stream().cuda_stream

    def forward(self):
        self.aim()
        self.plan.forward(self.io)

    def backward(self, go):
        self.aim()
        dq, dk, dv = (g.data_ptr() for g in self.grads)
        d = libfoci.sized(Grads, d_o=go.data_ptr(), dq=dq, dk=dk, dv=dv)
        self.plan.backward(self.io, d)

    def kernels(self):
        return next(line.split("kernels")[1].strip()
                    for line in self.plan.describe().splitlines() if "kernels" in line)


def draw(*shape, dtype=torch.bfloat16, by=1.0):
    return (torch.randn(*shape, device="cuda") * by).to(dtype)


#
# Against double precision
#

def mask_of(nq, nk, causal, window=None, docs=None, lens=None):
    i = torch.arange(nq, device="cuda")[:, None] + nk - nq
    j = torch.arange(nk, device="cuda")[None, :]
    seen = torch.ones((nq, nk), dtype=torch.bool, device="cuda")
    if causal:
        seen &= j <= i
    if window is not None:
        seen &= (i - j).abs() <= window
    if docs:
        ids = torch.bucketize(torch.arange(nq, device="cuda"),
                              torch.tensor(docs, device="cuda"), right=True)
        inside = (ids > 0) & (ids < len(docs))
        seen &= (ids[:, None] == ids[None, :]) & inside[:, None]
    if lens:
        end = torch.tensor(lens, device="cuda")[:, None, None]
        seen = (seen & (i < end) & (j < end))[:, None]
    return seen


def reference(q, k, v, go, seen, slope=None, cap=0):
    q, k, v = (x.double().requires_grad_() for x in (q, k, v))
    share = q.shape[1] // k.shape[1]
    kk, vv = (x.repeat_interleave(share, 1) for x in (k, v))
    s = q @ kk.transpose(-1, -2) * q.shape[-1] ** -0.5
    if slope is not None:
        nq, nk = s.shape[-2:]
        i = torch.arange(nq, device="cuda")[:, None] + nk - nq
        j = torch.arange(nk, device="cuda")[None, :]
        s = s - slope[None, :, None, None] * (i - j).abs()
    if cap:
        s = cap * torch.tanh(s / cap)
    s = s.masked_fill(~seen, -math.inf)
    top = s.amax(-1, keepdim=True)
    top = torch.where(top == -math.inf, torch.zeros_like(top), top)
    p = torch.exp(s - top.detach())
    total = p.sum(-1, keepdim=True)
    p = p / torch.where(total == 0, torch.ones_like(total), total)
    o = p @ vv
    grads = torch.autograd.grad(o, (q, k, v), go.double())
    return (o.detach(), *grads)


def slopes(h):
    return torch.tensor([2 ** (-8 * (i + 1) / h) for i in range(h)], device="cuda",
                        dtype=torch.float64)


CHECKS = [  # spec, batch, heads, kv, nq, nk, d, dv, causal, more
    ("softmax", 2, 4, 4, 512, 512, 128, 128, False, {}),
    ("softmax", 2, 4, 4, 512, 512, 128, 128, True, {}),
    ("softmax", 2, 4, 4, 512, 512, 64, 64, False, {}),
    ("softmax", 2, 4, 4, 512, 512, 64, 64, True, {}),
    ("softmax", 1, 8, 2, 1000, 1000, 128, 128, True, {}),
    ("softmax", 1, 8, 2, 1000, 1000, 64, 64, True, {}),
    ("softmax", 1, 6, 2, 777, 1333, 64, 64, False, {}),
    ("softmax", 1, 6, 2, 777, 1333, 128, 128, False, {}),
    ("softmax", 1, 6, 2, 300, 1333, 128, 128, True, {}),
    ("softmax", 1, 2, 2, 1333, 300, 128, 128, True, {}),
    ("softmax", 1, 2, 2, 1333, 300, 64, 64, True, {}),
    ("softmax", 1, 40, 40, 2048, 2048, 128, 128, True, {}),
    ("softmax", 1, 40, 40, 2048, 2048, 64, 64, False, {}),
    ("softmax", 1, 4, 4, 1000, 1000, 96, 96, True, {}),
    ("softmax", 1, 4, 4, 1000, 1000, 72, 40, False, {}),
    ("softmax", 1, 4, 4, 1000, 1000, 24, 56, True, {}),
    ("softmax", 1, 2, 2, 1000, 1000, 192, 192, True, {}),
    ("softmax", 1, 2, 2, 1000, 1000, 256, 256, False, {}),
    ("local(window=100)", 1, 4, 4, 1500, 1500, 128, 128, True, {"window": 100}),
    ("local(window=300)", 2, 4, 2, 1500, 1500, 64, 64, False, {"window": 300}),
    ("local(window=70)", 1, 2, 1, 1111, 1111, 128, 128, True, {"window": 70}),
    ("softmax alibi", 1, 8, 8, 1000, 1000, 128, 128, True, {"alibi": True}),
    ("softmax alibi", 1, 8, 8, 1000, 1000, 64, 64, False, {"alibi": True}),
    ("softmax cap(20)", 1, 4, 4, 1000, 1000, 128, 128, True, {"cap": 20.0}),
    ("softmax cap(20)", 1, 4, 2, 1000, 1000, 64, 64, True, {"cap": 20.0}),
    ("softmax", 1, 4, 4, 2000, 2000, 128, 128, True, {"docs": [0, 1, 300, 300, 1290, 1999]}),
    ("softmax", 1, 4, 4, 2000, 2000, 64, 64, False, {"docs": [5, 100, 700, 1800]}),
    ("softmax", 3, 4, 2, 900, 900, 128, 128, True, {"lens": [900, 0, 517]}),
    ("softmax", 3, 4, 4, 900, 900, 64, 64, False, {"lens": [1, 900, 641]}),
    ("local(window=100)", 1, 4, 4, 2000, 2000, 128, 128, False,
     {"docs": [0, 333, 1300, 2000], "window": 100}),
    ("local(window=100)", 1, 4, 4, 2000, 2000, 64, 64, True,
     {"docs": [0, 333, 1300, 2000], "window": 100}),
]


def check(context, args):
    """Relative errors of o, dq, dk, dv; NaN must reach only those that see it."""
    worst, bad = 0.0, 0
    for dtype in (torch.bfloat16, torch.float16):
        for n, (spec, b, h, kv, nq, nk, d, dv, causal, more) in enumerate(CHECKS):
            torch.manual_seed(n)
            q, go = draw(b, h, nq, d, dtype=dtype), draw(b, h, nq, dv, dtype=dtype)
            k, v = draw(b, kv, nk, d, dtype=dtype), draw(b, kv, nk, dv, dtype=dtype)
            f = Foci(context, spec, q, k, v, causal, True, more.get("docs"),
                     more.get("lens"))
            for x in (f.o, *f.grads):
                x.fill_(float("nan"))
            f.forward()
            f.backward(go)
            first = [x.clone() for x in (f.o, *f.grads)]
            f.forward()
            f.backward(go)
            same = all(torch.equal(x, y) for x, y in zip(first, (f.o, *f.grads)))
            seen = mask_of(nq, nk, causal, more.get("window"), more.get("docs"),
                           more.get("lens"))
            want = reference(q, k, v, go, seen, slopes(h) if more.get("alibi") else None,
                             more.get("cap", 0))
            errors = [((x.double() - y).norm() / (y.norm() + 1e-30)).item()
                      for x, y in zip(first, want)]
            ok = same and all(e < 6e-3 for e in errors)
            bad += not ok
            worst = max([worst] + [e for e in errors if e == e])
            print(f"{'ok ' if ok else 'BAD'} {str(dtype)[6:]:8} {spec:18} b{b}h{h}k{kv}n{nq}"
                  f"m{nk}d{d}v{dv}{'c' * causal} {f.kernels():34}",
                  *(f"{e:.1e}" for e in errors), "" if same else "DIFFERS", flush=True)
            f.plan.close()
    print(f"check: {2 * len(CHECKS)} cases, {bad} bad, worst {worst:.2e}", flush=True)


def spoilt(context, args):
    """A value that is not finite, in one row, reaches only rows that see it."""
    bad = n_cases = 0
    for d, spec, causal, window in ((128, "softmax", True, None), (64, "softmax", True, None),
                                    (64, "local(window=100)", False, 100),
                                    (128, "local(window=100)", True, 100)):
        n, at = 700, 301
        seen = mask_of(n, n, causal, window)
        sees_at, seen_by_at = seen[:, at], seen[at]
        together = (seen.float().T @ seen[:, at].float()) > 0  # keys of queries that see at
        none = torch.zeros(n, dtype=torch.bool, device="cuda")
        only = none.clone()
        only[at] = True
        reach = {"q": (only, only, seen_by_at, seen_by_at),
                 "k": (sees_at, sees_at, together | only, together | only),
                 "v": (sees_at, sees_at, together | only, together | only),
                 "go": (none, only, seen_by_at, seen_by_at)}
        for name in ("q", "k", "v", "go"):
            for value in (math.inf, math.nan):
                torch.manual_seed(1)
                x = {t: draw(1, 2, n, d) for t in ("q", "k", "v", "go")}
                f = Foci(context, spec, x["q"], x["k"], x["v"], causal, True)
                f.forward()
                f.backward(x["go"])
                clean = [t.clone() for t in (f.o, *f.grads)]
                x[name][0, 1, at, d // 2] = value
                f.forward()
                f.backward(x["go"])
                got = (f.o, *f.grads)
                ok = True
                for part, (a, b) in enumerate(zip(got, clean)):
                    ok = ok and torch.equal(a[0, 0], b[0, 0])
                    keep = ~reach[name][part]
                    a, b = a[0, 1, keep].double(), b[0, 1, keep].double()
                    ok = ok and bool(((a - b).abs() <= 0.02 * b.abs() + 0.02).all())
                bad += not ok
                n_cases += 1
                if not ok:
                    print(f"BAD {spec} d{d} {'causal' if causal else ''}: {value} in {name}")
                f.plan.close()
    print(f"spoilt: {n_cases} cases, {bad} bad", flush=True)


#
# Times
#

def batch(f, times):
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    f()
    begin.record()
    for _ in range(times):
        f()
    end.record()
    torch.cuda.synchronize()
    return begin.elapsed_time(end) / times


def race(sides, args, ms=15):
    """Median milliseconds of each side, in rounds of shuffled order."""
    times = {}
    for name, f in list(sides.items()):
        try:
            times[name] = max(2, int(ms / max(batch(f, 2), 1e-3)))
        except Exception as error:  # a side that cannot
            print(f"  {name}: {str(error)[:80]!r}")
            del sides[name]
    took = {name: [] for name in sides}
    for _ in range(args.rounds):
        names = list(sides)
        random.shuffle(names)
        for name in names:
            took[name].append(batch(sides[name], times[name]))
    return {name: statistics.median(x) for name, x in took.items()}


def sdpa(q, k, v, backend, causal, **more):
    def run():
        with sdpa_kernel(backend):
            return F.scaled_dot_product_attention(q, k, v, is_causal=causal, **more)
    return run


def tell(results, name, flops, ms):
    rates = {side: flops / t / 1e9 for side, t in ms.items()}
    ours = ms["foci"]
    line = f"{name:36}" + " ".join(
        f"{side} {rates[side]:6.0f}" + (f" ({ms[side] / ours:4.2f}x)" if side != "foci" else "")
        for side in rates)
    print(line, flush=True)
    results[name] = {"ms": ms, "tflops": rates}


def dense(context, args, results, cases, backward):
    for d, n, causal in cases:
        b, h = max(16384 // n, 1), max(2048 // d, 1)
        q, k, v, go = (draw(b, h, n, d) for _ in range(4))
        f = Foci(context, "softmax", q, k, v, causal, True)
        f.forward()
        flops = 4 * b * h * n * n * d / (2 if causal else 1)
        sides = {"foci": f.forward}
        if backward:
            flops *= 2.5
            sides = {"foci": lambda: f.backward(go)}
            for name, other in args.others.items():
                g = Foci(other, "softmax", q, k, v, causal, True)
                g.forward()
                sides[name] = lambda g=g: g.backward(go)
            x = [t.detach().requires_grad_() for t in (q, k, v)]
            for name, backend in (("cudnn", CUDNN), ("flash2", FLASH)):
                if name == "flash2" and not args.flash:
                    continue
                o = sdpa(*x, backend, causal)()
                sides[name] = lambda o=o: torch.autograd.grad(o, x, go, retain_graph=True)
        else:
            for name, backend in (("cudnn", CUDNN), ("flash2", FLASH)):
                sides[name] = sdpa(q, k, v, backend, causal)
        tell(results, f"{'bwd' if backward else 'fwd'} d{d} n{n} {'causal' if causal else 'full'}",
             flops, race(sides, args))
        f.plan.close()
        del q, k, v, go, f, sides


LENGTHS = (2048, 4096, 16384)


def forward(context, args, results):
    cases = [(d, n, x) for d in (128, 64) for n in LENGTHS for x in (False, True)]
    dense(context, args, results, cases, False)


def widths(context, args, results):
    cases = [(d, 4096, x) for d in (72, 80, 96, 192, 256) for x in (False, True)]
    dense(context, args, results, cases, False)


def backward(context, args, results):
    cases = [(d, n, x) for d in (128, 64) for n in LENGTHS for x in (False, True)]
    dense(context, args, results, cases, True)


def flex_cases(n, h):
    from torch.nn.attention.flex_attention import create_block_mask

    def near(b, h_, i, j):
        return (i >= j) & (i - j <= 512)

    def below(b, h_, i, j):
        return i >= j

    bounds = [0, n // 8, n // 3, n // 2, n]
    ids = torch.bucketize(torch.arange(n, device="cuda"),
                          torch.tensor(bounds, device="cuda"), right=True)

    def document(b, h_, i, j):
        return (ids[i] == ids[j]) & (i >= j)

    slope = slopes(h).float()

    def alibi(score, b, h_, i, j):
        return score - slope[h_] * (i - j)

    def cap(score, b, h_, i, j):
        return 20 * torch.tanh(score / 20)

    def block(mask):
        return create_block_mask(mask, None, None, n, n, device="cuda")

    return [("local(window=512)", block(near), None, {}),
            ("softmax alibi", block(below), alibi, {}),
            ("softmax cap(20)", block(below), cap, {}),
            ("softmax", block(document), None, {"docs": bounds})]


def sparse(context, args, results):
    from torch.nn.attention.flex_attention import flex_attention
    b, h, n, d = 1, 16, args.n, args.width
    q, k, v, go = (draw(b, h, n, d) for _ in range(4))
    x = [t.detach().requires_grad_() for t in (q, k, v)]
    cases = [x for x in flex_cases(n, h) if not args.only or args.only in (x[0], *x[3])]
    for spec, mask, score, more in cases:
        flex = torch.compile(flex_attention, dynamic=False)
        f = Foci(context, spec, q, k, v, True, True, **more)
        f.forward()
        print(f"{spec} {more}: {f.kernels()}")
        sides = {"foci": f.forward, "flex": lambda: flex(q, k, v, score, mask)}
        tell(results, f"{spec} {'docs' * bool(more)} d{d} n{n} fwd", 1e9, race(sides, args))
        o = flex(*x, score, mask)
        sides = {"foci": lambda: f.backward(go),
                 "flex": lambda: torch.autograd.grad(o, x, go, retain_graph=True)}
        tell(results, f"{spec} {'docs' * bool(more)} d{d} n{n} bwd", 1e9, race(sides, args))
        f.plan.close()
        torch._dynamo.reset()


def graph_of(f, n):
    f(0)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for i in range(n):
            f(i)
    return graph


def decode(context, args, results):
    for b, n in ((1, 4096), (1, 16384), (1, 131072), (8, 8192), (64, 4096), (16, 32768)):
        bytes_ = b * 8 * n * 128 * 4
        sets = max(1, min(8, int(4e8 // bytes_) + 1))
        tensors = [(draw(b, 32, 1, 128), draw(b, 8, n, 128), draw(b, 8, n, 128))
                   for _ in range(sets)]
        plans = [Foci(context, "softmax", *t, causal=True) for t in tensors]
        times = max(4, sets)
        graphs = {"foci": graph_of(lambda i: plans[i % sets].forward(), times)}
        for name, backend in (("cudnn", CUDNN), ("flash2", FLASH)):
            runs = [sdpa(*t, backend, False, enable_gqa=True) for t in tensors]
            try:
                graphs[name] = graph_of(lambda i: runs[i % sets](), times)
            except Exception as error:
                print(f"  {name}: {str(error)[:80]!r}")
        whole = [t[1].view(torch.int64) for t in tensors]
        graphs["read"] = graph_of(lambda i: torch.sum(whole[i % sets]), times)
        ms = race({name: g.replay for name, g in graphs.items()}, args, 5)
        ms = {name: t / times * (2 if name == "read" else 1) for name, t in ms.items()}
        rates = " ".join(f"{name} {t * 1e3:7.1f} us {bytes_ / t / 1e9:5.2f} TB/s"
                         for name, t in ms.items())
        print(f"decode b{b} n{n} {bytes_ / 1e6:5.0f} MB: {rates}", flush=True)
        results[f"decode b{b} n{n}"] = ms
        del graphs, plans, tensors


def launch(context, args, results):
    import time
    q, k, v = (draw(1, 8, 128, 64) for _ in range(3))
    f = Foci(context, "softmax", q, k, v, True)
    for _ in range(100):
        f.forward()
    torch.cuda.synchronize()
    begin = time.perf_counter()
    for _ in range(2000):
        f.forward()
    torch.cuda.synchronize()
    eager = (time.perf_counter() - begin) / 2000
    graph = graph_of(lambda i: f.forward(), 50)
    inside = race({"foci": graph.replay}, args, 5)["foci"] / 50
    print(f"launch n128 h8 d64: {eager * 1e6:.1f} us from Python, {inside * 1e3:.1f} us in a "
          "graph", flush=True)
    results["launch"] = {"eager_us": eager * 1e6, "graph_us": inside * 1e3}


PARTS = dict(check=lambda c, a, r: check(c, a), spoilt=lambda c, a, r: spoilt(c, a),
             forward=forward, widths=widths,
             sparse=sparse, backward=backward, decode=decode, launch=launch)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--lib", required=True)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json")
    parser.add_argument("--n", type=int, default=4096, help="rows of sparse cases")
    parser.add_argument("--width", type=int, default=128, help="of rows of sparse cases")
    parser.add_argument("--only", help="the sparse case of this spec, or docs")
    parser.add_argument("--flash", action="store_true", help="flash attention 2 backward too")
    parser.add_argument("--other", action="append", default=[], metavar="NAME=LIB",
                        help="another build, in the races of backward")
    parser.add_argument("parts", nargs="+", choices=list(PARTS))
    args = parser.parse_args()
    random.seed(1)
    context, results = Context(args.lib), {}
    args.others = {name: Context(path) for name, path in
                   (other.split("=") for other in args.other)}
    for part in args.parts:
        PARTS[part](context, args, results)
        if args.json:
            with open(args.json, "w") as file:
                json.dump(results, file, indent=1)


if __name__ == "__main__":
    main()
