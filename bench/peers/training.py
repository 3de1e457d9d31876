"""Training steps of whole models, against the same architecture in PyTorch.

Both start from the same weights and see the same batch.  A step is the loss, its gradients,
clipping and AdamW; the peer is PyTorch in bf16 autocast or f32, eager and by torch.compile,
each a case of its own.  `run.py --losses` compares the losses of many steps on text.
"""
import ctypes as c
import gzip
import pathlib
from dataclasses import dataclass

import torch
import torch.nn.functional as F

import libfoci
from case import NONE, Case, Floor, Nothing

EAGER, COMPILED = "PyTorch eager", "torch.compile"
LM, TRANSLATE = 0, 2
SPECIALS = (c.c_int32 * 5)(0, 1, 2, 3, -1)  # <pad>, <bos>, <eos>, <unk>; no <mask>


class Config(c.Structure):
    _fields_ = [("size", c.c_size_t), ("task", c.c_int)] + [
        (name, c.c_int64)
        for name in ("vocab", "source_vocab", "classes", "patch", "grid_rows", "grid_cols",
                     "context", "source_context", "layers", "decoder_layers", "width",
                     "heads", "kv_heads", "head_dim", "value_dim", "ffn", "conv")
    ] + [(name, c.c_char_p) for name in ("attention", "encoder_attention",
                                         "decoder_attention", "cross_attention")] + [
        ("kind", c.c_int), ("blocks", c.c_void_p), ("n_blocks", c.c_int64),
        ("positions", c.c_int), ("norm", c.c_int), ("activation", c.c_int),
        ("gated", c.c_int), ("pooling", c.c_int), ("untied", c.c_int),
        ("no_biases", c.c_int), ("dropout", c.c_double), ("weight_dropout", c.c_double),
        ("embedding_dropout", c.c_double), ("dtype", c.c_int), ("seed", c.c_uint64),
        ("specials", c.c_int32 * 5)]


class Batch(c.Structure):
    _fields_ = [("size", c.c_size_t), ("batch", c.c_int64), ("len", c.c_int64)] + [
        (name, c.c_void_p) for name in ("ids", "lens", "labels", "label_at", "classes",
                                        "words")
    ] + [("source_len", c.c_int64)] + [
        (name, c.c_void_p) for name in ("source_ids", "source_lens", "source_words",
                                        "patches")
    ] + [("patch_width", c.c_int64)] + [
        (name, c.c_void_p) for name in ("patch_rows", "patch_cols", "docs")
    ] + [("n_docs", c.c_int64)] + [
        (name, c.c_void_p) for name in ("positions", "examples", "slices")
    ] + [("n_slices", c.c_int), ("n_labels", c.c_int64), ("n_tokens", c.c_int64)]


class LossOptions(c.Structure):
    _fields_ = [("size", c.c_size_t), ("smoothing", c.c_double), ("scale", c.c_double)]


class Loss(c.Structure):
    _fields_ = [("size", c.c_size_t), ("sum", c.c_double), ("labels", c.c_int64),
                ("hits", c.c_int64)]


class Segment(c.Structure):
    _fields_ = [("begin", c.c_int64), ("end", c.c_int64), ("decay", c.c_double)]


class AdamW(c.Structure):
    _fields_ = [("size", c.c_size_t), ("segments", c.POINTER(Segment)),
                ("n_segments", c.c_int64)] + [
        (name, c.c_void_p) for name in ("params", "grads", "m", "v")] + [
        (name, c.c_double) for name in ("rate", "beta1", "beta2", "eps", "decay", "scale")
    ] + [("step", c.c_int64), ("clear", c.c_int)]


BETAS, EPS, DECAY, CLIP = (0.9, 0.95), 1e-8, 0.1, 1.0


@dataclass
class Training(Case):
    kind: int
    layers: int
    width: int
    context: int
    vocab: int
    dtype: str
    peer: str
    floor: Floor
    floor_amx: Floor
    batch: int = 16
    heads: int = 8
    rate: float = 1e-4

    unit = "ktoken/s"
    share_of = "peak of products"
    backward = True
    rounds = 5

    @property
    def name(self):
        kind = "lm" if self.kind == LM else "translate"
        return (f"{kind}/l{self.layers}w{self.width}h{self.heads}n{self.context}"
                f"b{self.batch}v{self.vocab}/{self.dtype}/train")

    @property
    def tokens(self):
        return self.batch * self.context * (1 if self.kind == LM else 2)

    @property
    def work(self):  # so that 1e9 of them are a thousand tokens
        return 1e6 * self.tokens

    def flops(self):
        """Of the products of a step: three times those of the forward pass."""
        w, n = self.width, self.context
        rows = self.batch * n
        ffn = 2 * 4 * w * w
        own = 4 * w * w
        attend = 2 * n * w  # q.k and weights times values, all pairs
        if self.kind == LM:
            blocks = self.layers * rows * (own + ffn + attend / 2)
        else:
            blocks = self.layers * rows * (
                (own + ffn + attend) + (2 * own + ffn + 1.5 * attend))
        return 3 * 2 * (blocks + rows * w * self.vocab)

    def least_seconds(self, machine, ours):
        peak = machine.f32_flops if self.dtype == "f32" else machine.bf16_flops
        return self.flops() / peak

    def sides(self, context):
        ours = Foci(context, self)
        return ours, Peer(self, ours)


def shapes():
    return ((LM, 4, 256, 256, 8192), (LM, 6, 512, 512, 8192), (TRANSLATE, 3, 256, 64, 8192))


def cases():
    out = []
    for kind, layers, width, context, vocab in shapes():
        for dtype, floor in (("bf16", 2.0), ("f32", 1.3)):
            for peer in (EAGER, COMPILED):
                out.append(Training(kind, layers, width, context, vocab, dtype, peer,
                                    Floor(floor), Floor(floor),
                                    batch=16 if kind == LM else 64))
    return out


def draw(case):
    """Ids, labels and sources of a batch: noise."""
    make = torch.Generator().manual_seed(5)
    shape = (case.batch, case.context)
    ids = torch.randint(4, case.vocab, shape, generator=make, dtype=torch.int32)
    labels = torch.randint(4, case.vocab, shape, generator=make, dtype=torch.int32)
    source = torch.randint(4, case.vocab, shape, generator=make, dtype=torch.int32)
    return ids, labels, source


def make_model(context, case):
    """The model, its parameters as one tensor, and (name, offset, shape) of each."""
    lib = context.lib
    config = libfoci.sized(
        Config, task=case.kind, vocab=case.vocab, context=case.context, layers=case.layers,
        width=case.width, heads=case.heads, ffn=4 * case.width, attention=b"softmax",
        positions=0, norm=0, dtype=libfoci.BF16 if case.dtype == "bf16" else libfoci.F32,
        seed=3, specials=SPECIALS)
    model = c.c_void_p()
    context.check(lib.foci_model_create(context.ctx, c.byref(config), c.byref(model)))
    lib.foci_model_param_floats.restype = c.c_int64
    lib.foci_model_params.restype = c.c_void_p
    n = lib.foci_model_param_floats(model)
    memory = (c.c_float * n).from_address(lib.foci_model_params(model))
    params = torch.frombuffer(memory, dtype=torch.float32)
    tensors = {}
    for i in range(lib.foci_model_param_count(model)):
        p = libfoci.sized(libfoci.Param)
        context.check(lib.foci_model_param(model, i, c.byref(p)))
        tensors[p.name.decode()] = params[p.offset:p.offset + p.count].view(
            *p.shape[:p.n_dims])
    return model, params, tensors


class Foci(Nothing):
    def __init__(self, context, case):
        self.context, self.lib, self.case = context, context.lib, case
        self.model, self.params, self.tensors = make_model(context, case)
        self.plan = self  # what describes itself
        self.start = {name: t.clone() for name, t in self.tensors.items()}
        n = self.params.numel()
        self.grads, self.m, self.v = (torch.zeros(n) for _ in range(3))
        self.segments = (Segment * len(self.tensors))(*(
            Segment(t.storage_offset(), t.storage_offset() + t.numel(), float(t.dim() > 1))
            for t in sorted(self.tensors.values(), key=lambda t: t.storage_offset())))
        self.ids, self.labels, self.source = draw(case)
        self.lens = torch.full((case.batch,), case.context, dtype=torch.int32)
        self.label_at = torch.arange(self.ids.numel())
        self.batch = libfoci.sized(
            Batch, batch=case.batch, len=case.context, ids=self.ids.data_ptr(),
            lens=self.lens.data_ptr(), labels=self.labels.data_ptr(),
            label_at=self.label_at.data_ptr(), n_labels=self.ids.numel(),
            n_tokens=self.ids.numel())
        if case.kind == TRANSLATE:
            self.batch.source_len = case.context
            self.batch.source_ids = self.source.data_ptr()
            self.batch.source_lens = self.lens.data_ptr()
        self.squares = torch.empty(n // 64 + 65536)
        self.step, self.losses = 0, []
        self.run()

    def run(self):
        lib, check = self.lib, self.context.check
        loss = libfoci.sized(Loss)
        check(lib.foci_model_loss(
            self.model, c.byref(self.batch),
            c.byref(libfoci.sized(LossOptions, scale=1 / self.batch.n_labels)),
            c.c_void_p(self.grads.data_ptr()), c.byref(loss)))
        self.step += 1
        self.losses.append(loss.sum / loss.labels)
        total = c.c_double()
        check(lib.foci_squares(
            self.context.ctx, self.segments, c.c_int64(len(self.segments)),
            c.c_void_p(self.grads.data_ptr()), c.c_void_p(self.squares.data_ptr()),
            c.byref(total)))
        norm = total.value ** 0.5
        io = libfoci.sized(
            AdamW, segments=self.segments, n_segments=len(self.segments),
            params=self.params.data_ptr(), grads=self.grads.data_ptr(),
            m=self.m.data_ptr(), v=self.v.data_ptr(), rate=self.case.rate, beta1=BETAS[0],
            beta2=BETAS[1], eps=EPS, decay=DECAY, scale=min(1, CLIP / norm),
            step=self.step, clear=1)
        check(lib.foci_adamw(self.context.ctx, c.byref(io)))

    def describe(self):
        return f"{self.params.numel()} parameters"

    def results(self):
        return [torch.tensor(self.losses[:1])]

    def load(self, ids, labels):
        """The next batch."""
        self.ids.copy_(ids)
        self.labels.copy_(labels)

    def close(self):
        self.lib.foci_model_free(self.model)


class Attention(torch.nn.Module):
    """Weights stand on the right of rows, as in ours."""

    def __init__(self, t, prefix, heads, causal):
        super().__init__()
        for name in ("Wq", "Wk", "Wv", "Wo", "bq", "bk", "bv", "bo"):
            setattr(self, name, torch.nn.Parameter(t[f"{prefix}.{name}"].T.contiguous()
                                                   if name[0] == "W" else
                                                   t[f"{prefix}.{name}"].clone()))
        self.heads, self.causal = heads, causal

    def forward(self, x, source=None):
        source = x if source is None else source
        q, k, v = (F.linear(s, w, b).unflatten(2, (self.heads, -1)).transpose(1, 2)
                   for s, w, b in ((x, self.Wq, self.bq), (source, self.Wk, self.bk),
                                   (source, self.Wv, self.bv)))
        o = F.scaled_dot_product_attention(q, k, v, is_causal=self.causal)
        return F.linear(o.transpose(1, 2).flatten(2), self.Wo, self.bo)


def norm(t, prefix, width):
    out = torch.nn.LayerNorm(width)
    with torch.no_grad():
        out.weight.copy_(t[f"{prefix}.gain"])
        out.bias.copy_(t[f"{prefix}.bias"])
    return out


class Block(torch.nn.Module):
    def __init__(self, t, prefix, case, causal, cross):
        super().__init__()
        w = case.width
        self.norm1 = norm(t, f"{prefix}.attention.norm", w)
        self.attention = Attention(t, f"{prefix}.attention", case.heads, causal)
        self.cross = None
        if cross:
            self.norm2 = norm(t, f"{prefix}.cross.norm", w)
            self.cross = Attention(t, f"{prefix}.cross", case.heads, False)
        self.norm3 = norm(t, f"{prefix}.ffn.norm", w)
        for name in ("W1", "W2"):
            setattr(self, name, torch.nn.Parameter(t[f"{prefix}.ffn.{name}"].T.contiguous()))
        for name in ("b1", "b2"):
            setattr(self, name, torch.nn.Parameter(t[f"{prefix}.ffn.{name}"].clone()))

    def forward(self, x, source=None):
        x = x + self.attention(self.norm1(x))
        if self.cross is not None:
            x = x + self.cross(self.norm2(x), source)
        h = F.gelu(F.linear(self.norm3(x), self.W1, self.b1))
        return x + F.linear(h, self.W2, self.b2)


class Stack(torch.nn.Module):
    def __init__(self, t, name, case, causal, cross):
        super().__init__()
        prefix = name + "." if name else ""
        self.positions = torch.nn.Parameter(t[f"{prefix}positions"].clone())
        self.blocks = torch.nn.ModuleList(
            Block(t, f"{prefix}{i}", case, causal, cross) for i in range(case.layers))
        self.norm = norm(t, f"{prefix}norm", case.width)

    def forward(self, x, source=None):
        x = x + self.positions[:x.shape[1]]
        for block in self.blocks:
            x = block(x, source)
        return self.norm(x)


class Model(torch.nn.Module):
    def __init__(self, t, case):
        super().__init__()
        self.embedding = torch.nn.Parameter(t["embedding"].clone())
        self.encoder = None
        if case.kind == TRANSLATE:
            self.encoder = Stack(t, "encoder", case, False, False)
        self.decoder = Stack(t, "decoder" if case.kind == TRANSLATE else "", case, True,
                             case.kind == TRANSLATE)

    def forward(self, ids, labels, source):
        memory = None
        if self.encoder is not None:
            memory = self.encoder(F.embedding(source, self.embedding))
        h = self.decoder(F.embedding(ids, self.embedding), memory)
        return F.cross_entropy(F.linear(h, self.embedding).flatten(0, 1), labels.flatten())


class Peer(Nothing):
    def __init__(self, case, ours):
        self.case = case
        torch.manual_seed(0)
        self.model = Model(ours.start, case)
        self.ids, self.labels, self.source = (t.long() for t in draw(case))
        groups = [{"params": [p for p in self.model.parameters() if (p.dim() > 1) == big],
                   "weight_decay": DECAY * big} for big in (True, False)]
        self.optimiser = torch.optim.AdamW(groups, lr=case.rate, betas=BETAS, eps=EPS, fused=True)
        self.call = torch.compile(self.model) if case.peer == COMPILED else self.model
        self.losses = []
        self.run()

    def run(self):
        with torch.autocast("cpu", torch.bfloat16, enabled=self.case.dtype == "bf16"):
            loss = self.call(self.ids, self.labels, self.source)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), CLIP)
        self.optimiser.step()
        self.optimiser.zero_grad(set_to_none=True)
        self.losses.append(loss.item())

    def results(self):
        return [torch.tensor(self.losses[:1])]

    def load(self, ids, labels):
        self.ids.copy_(ids)
        self.labels.copy_(labels)


# Losses, step by step, of text.
NOVEL = pathlib.Path(__file__).resolve().parents[2] / "data/austen-pride.train.txt.gz"


def compare_losses(context, dtype, steps):
    """[(ours, theirs)] of so many steps from the same weights and batches."""
    case = Training(LM, 4, 256, 128, 256, dtype, EAGER, NONE, NONE, batch=8, rate=1e-3)
    text = torch.frombuffer(bytearray(gzip.decompress(NOVEL.read_bytes())),
                            dtype=torch.uint8).int()
    make = torch.Generator().manual_seed(17)
    ours = Foci(context, case)
    theirs = Peer(case, ours)
    for _ in range(steps - 1):
        begins = torch.randint(len(text) - case.context - 1, (case.batch, 1), generator=make)
        at = begins + torch.arange(case.context)
        for side in ours, theirs:
            side.load(text[at], text[at + 1])
            side.run()
    ours.close()
    return list(zip(ours.losses, theirs.losses))


GROUPS = {"train": cases}
