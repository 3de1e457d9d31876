"""Whole layers, from hidden states to hidden states with all four projections: against
torch.nn.MultiheadAttention on its fast path, against a layer written in PyTorch around
scaled_dot_product_attention, and mechanisms of ours against each other.

Weights of PyTorch have the type of its tensors, ours are f32.  "both" is the forward pass
and then the backward pass, with gradients of the hidden states and of all weights that
are trained.
"""
from dataclasses import dataclass

import torch
import torch.nn.functional as F

import libfoci
from case import Case, Floor, Nothing, draw

MULTIHEAD, WRITTEN = "MultiheadAttention", "PyTorch layer"


@dataclass
class Layer(Case):
    spec: str
    peer: str  # MULTIHEAD, WRITTEN, or a spec of ours
    dtype: str
    passes: str  # fwd, bwd, both
    floor: Floor
    floor_amx: Floor
    n: int = 1024
    batch: int = 4
    heads: int = 8
    width: int = 512

    unit = "ktoken/s"
    share_of = None

    @property
    def name(self):
        return (f"{self.spec}/b{self.batch}h{self.heads}n{self.n}w{self.width}/{self.dtype}/"
                f"{self.passes}")

    @property
    def backward(self):
        return self.passes != "fwd"

    @property
    def comparable(self):
        return self.peer in (MULTIHEAD, WRITTEN)

    @property
    def work(self):  # so that 1e9 of them are a thousand tokens
        return 1e6 * self.batch * self.n

    def least_seconds(self, machine, ours):
        return 0

    def sides(self, context):
        x, dy = draw((self.batch, self.n, self.width), self.dtype, self.n, 2)
        ours = Foci(context, self, self.spec, x, dy)
        if not self.comparable:
            return ours, Foci(context, self, self.peer, x, dy)
        peer = Multihead if self.peer == MULTIHEAD else Written
        return ours, peer(self, ours.weights(), x, dy)


def cases():
    return [Layer("softmax", peer, dtype, passes, Floor(floor), Floor(floor_amx))
            for dtype, floor, floor_amx in (("bf16", 1.8, 2.0), ("f32", 1.15, 1.2))
            for peer, passes in ((MULTIHEAD, "fwd"), (WRITTEN, "fwd"), (WRITTEN, "both"))]


def own():
    out = []
    for dtype in "bf16", "f32":
        out.append(Layer("softmax frozen(orthogonal)", "softmax", dtype, "bwd",
                         Floor(1.02), Floor(1.02)))
    for dtype, passes in (("bf16", "fwd"), ("bf16", "both"), ("f32", "fwd")):
        out.append(Layer("7*fixed + 1*softmax", "8*softmax", dtype, passes, Floor(2.5),
                         Floor(2.5), n=2048))
    return out


GROUPS = {"layer": cases, "layer-own": own}


class Foci(Nothing):
    def __init__(self, context, case, spec, x, dy):
        problem = libfoci.sized(
            libfoci.LayerProblem, dtype=libfoci.BF16 if case.dtype == "bf16" else libfoci.F32,
            flags=libfoci.TRAIN * case.backward, batch=case.batch, len=case.n,
            width=case.width, heads=case.heads, biases=1)
        self.case = case
        self.plan = context.layer(spec, problem)  # what describes itself
        self.params = torch.frombuffer(self.plan.floats, dtype=torch.float32)
        self.dparams = torch.zeros_like(self.params)
        self.y, self.dx = torch.empty_like(x), torch.empty_like(x)
        work = torch.empty(self.plan.work_bytes + 64, dtype=torch.uint8)
        saved = torch.empty(self.plan.saved_bytes + 64, dtype=torch.uint8)
        self.keep = (x, dy, work, saved)
        aligned = [(t.data_ptr() + 63) // 64 * 64 for t in (work, saved)]
        self.io = libfoci.sized(
            libfoci.LayerIO, x=x.data_ptr(), y=self.y.data_ptr(),
            params=self.params.data_ptr(), work=aligned[0],
            saved=aligned[1] if case.backward else None)
        self.grads = libfoci.sized(
            libfoci.LayerGrads, dy=dy.data_ptr(), dx=self.dx.data_ptr(),
            dparams=self.dparams.data_ptr())
        make = torch.Generator().manual_seed(2)
        for name, bias in self.named(self.params).items():
            if bias.dim() == 1:  # they start as zeros, which would show no mistake
                bias.normal_(generator=make)
        self.plan.forward(self.io)

    def named(self, floats):
        return {name: floats[at:at + torch.Size(shape).numel()].view(shape)
                for name, at, shape in self.plan.tensors()}

    def weights(self):
        return self.named(self.params)

    def prepare(self):
        self.dparams.zero_()  # backward adds

    def run(self):
        if self.case.passes != "bwd":
            self.plan.forward(self.io)
        if self.case.backward:
            self.plan.backward(self.io, self.grads)

    def results(self):
        if not self.case.backward:
            return [self.y]
        d = self.named(self.dparams)
        qkv = torch.cat([d["Wq"], d["Wk"], d["Wv"]], 1).T
        biases = torch.cat([d["bq"], d["bv"]])  # that of keys is rounding around zero
        return [self.y, self.dx, qkv, biases, d["Wo"].T, d["bo"]]

    def close(self):
        self.plan.close()


class Peer(Nothing):
    """The same weights, in the type of the tensors, as PyTorch has them."""

    def __init__(self, case, weights, x, dy):
        def mine(*names):
            stacked = torch.cat([weights[name].T for name in names])
            return stacked.to(x.dtype).contiguous().requires_grad_(case.backward)

        self.case, self.dy = case, dy
        self.x = x.detach().requires_grad_(case.backward)
        self.inside = mine("Wq", "Wk", "Wv"), mine("bq", "bk", "bv")
        self.outside = mine("Wo"), mine("bo")
        self.make()
        self.run()

    def make(self):
        pass

    def prepare(self):
        for t in (self.x, *self.inside, *self.outside):
            t.grad = None

    def run(self):
        with torch.set_grad_enabled(self.case.backward):
            self.y = self.forward()
        if self.case.backward:
            self.y.backward(self.dy)

    def results(self):
        if not self.case.backward:
            return [self.y]
        bias, width = self.inside[1].grad, self.case.width
        return [self.y, self.x.grad, self.inside[0].grad,
                torch.cat([bias[:width], bias[2 * width:]]),
                *(t.grad for t in self.outside)]


class Written(Peer):
    def forward(self):
        case = self.case
        qkv = F.linear(self.x, *self.inside).view(case.batch, case.n, 3, case.heads, -1)
        o = F.scaled_dot_product_attention(*qkv.permute(2, 0, 3, 1, 4).unbind(0))
        return F.linear(o.transpose(1, 2).flatten(2), *self.outside)


class Multihead(Peer):
    def make(self):
        case = self.case
        self.layer = torch.nn.MultiheadAttention(case.width, case.heads, batch_first=True,
                                                 dtype=self.x.dtype).eval()
        with torch.no_grad():
            for to, of in ((self.layer.in_proj_weight, self.inside[0]),
                           (self.layer.in_proj_bias, self.inside[1]),
                           (self.layer.out_proj.weight, self.outside[0]),
                           (self.layer.out_proj.bias, self.outside[1])):
                to.copy_(of)
            self.see_fast_path()

    def see_fast_path(self):
        """It is one call; without it the numbers would be of something else."""
        call, seen = torch._native_multi_head_attention, []

        def counted(*args, **more):
            seen.append(1)
            return call(*args, **more)

        torch._native_multi_head_attention = counted
        self.forward()
        torch._native_multi_head_attention = call
        if not seen:
            raise libfoci.Error("MultiheadAttention does not take its fast path")

    def forward(self):
        return self.layer(self.x, self.x, self.x, need_weights=False)[0]
