"""Generation of one sequence, and translation by beam search, against PyTorch decoders.

Generation appends one token at a time through states; the peer keeps its keys and values in
tensors of full length, written in place.  So does the beam search's peer, which computes
keys and values of the sources once and lets hypotheses change places by index_select.
"""
import ctypes as c
import random

import torch
import torch.nn.functional as F

import libfoci
from case import Floor, Nothing
from training import EAGER, LM, TRANSLATE, Model, Training, make_model


class Generation(Training):
    share_of = None
    backward = False
    rounds = 10

    @property
    def comparable(self):  # rounding chooses other tokens in bf16
        return self.dtype == "f32"

    @property
    def name(self):
        return (f"lm/l{self.layers}w{self.width}h{self.heads}n{self.context}v{self.vocab}/"
                f"{self.dtype}/generate")

    @property
    def work(self):
        return 1e6 * self.context

    def sides(self, context):
        ours = FociGenerates(context, self)
        return ours, PeerGenerates(self, ours)


class FociGenerates(Nothing):
    def __init__(self, context, case):
        self.context, self.lib, self.case = context, context.lib, case
        self.model, self.params, self.tensors = make_model(context, case)
        self.plan = self  # what describes itself
        self.start = {name: t.clone() for name, t in self.tensors.items()}
        self.callback = c.CFUNCTYPE(c.c_int, c.c_void_p, c.c_int32)(self.token)
        self.run()

    def token(self, _, token):
        self.out.append(token)
        return 0

    def describe(self):
        return f"{self.params.numel()} parameters"

    def run(self):
        self.out = []
        first = c.c_int32(5)
        self.context.check(self.lib.foci_generate(
            self.model, c.byref(first), c.c_int64(1), c.c_int64(self.case.context - 1), None,
            self.callback, None))

    def results(self):
        return [torch.tensor(self.out, dtype=torch.float32)]

    def close(self):
        self.lib.foci_model_free(self.model)


class PeerGenerates(Nothing):
    """Keys and values are kept in tensors of full length, written in place."""

    def __init__(self, case, ours):
        self.case = case
        self.model = Model(ours.start, case).eval()
        if case.dtype == "bf16":
            self.model = self.model.bfloat16()
        self.run()

    @torch.inference_mode()
    def run(self):
        case, stack = self.case, self.model.decoder
        kind = self.model.embedding.dtype
        shape = (case.heads, case.context, case.width // case.heads)
        cache = [(torch.empty(shape, dtype=kind), torch.empty(shape, dtype=kind))
                 for _ in stack.blocks]
        token, self.out = 5, []
        for at in range(case.context - 1):
            x = (self.model.embedding[token] + stack.positions[at])[None]
            for block, (keys, values) in zip(stack.blocks, cache):
                a, h = block.attention, block.norm1(x)
                q = F.linear(h, a.Wq, a.bq).view(case.heads, 1, -1)
                keys[:, at] = F.linear(h, a.Wk, a.bk).view(case.heads, -1)
                values[:, at] = F.linear(h, a.Wv, a.bv).view(case.heads, -1)
                o = F.scaled_dot_product_attention(
                    q[None], keys[None, :, :at + 1], values[None, :, :at + 1])
                x = x + F.linear(o.flatten()[None], a.Wo, a.bo)
                h = F.gelu(F.linear(block.norm3(x), block.W1, block.b1))
                x = x + F.linear(h, block.W2, block.b2)
            logits = F.linear(stack.norm(x), self.model.embedding)
            token = int(logits.argmax())
            self.out.append(token)

    def results(self):
        return [torch.tensor(self.out, dtype=torch.float32)]


BOS, EOS, BEAM, SENTENCES, PENALTY = 1, 2, 4, 500, 0.6


class TranslateOptions(c.Structure):
    _fields_ = [("size", c.c_size_t), ("beam", c.c_int64), ("penalty", c.c_double),
                ("longest", c.c_int64), ("batch", c.c_int64)]


class Beam(Training):
    """All hypotheses run to the longest length: no state of the decoder is like <eos>."""
    share_of = None
    backward = False
    rounds = 1

    @property
    def comparable(self):  # rounding chooses other tokens in bf16
        return self.dtype == "f32"

    @property
    def name(self):
        return (f"translate/l{self.layers}w{self.width}h{self.heads}b{self.batch}"
                f"v{self.vocab}/{self.dtype}/beam{BEAM}")

    @property
    def work(self):
        return 1e6 * SENTENCES * self.longest

    @property
    def longest(self):
        return self.context // 2

    def sides(self, context):
        ours = FociBeams(context, self)
        return ours, PeerBeams(self, ours)

    def sentences(self):
        draw = random.Random(7)
        return [[draw.randrange(4, self.vocab) for _ in range(draw.randint(8, self.longest))]
                for _ in range(SENTENCES)]


def never_end(tensors):
    """The last hidden state is far from <eos>."""
    away = torch.randn(tensors["embedding"].shape[1],
                       generator=torch.Generator().manual_seed(11))
    away /= away.norm()
    tensors["decoder.norm.bias"].copy_(8 * away)
    tensors["embedding"][EOS] = -4 * away


class FociBeams(Nothing):
    def __init__(self, context, case):
        self.context, self.lib, self.case = context, context.lib, case
        self.model, self.params, self.tensors = make_model(context, case)
        never_end(self.tensors)
        self.plan = self  # what describes itself
        self.start = {name: t.clone() for name, t in self.tensors.items()}
        sentences = case.sentences()
        flat = [token for sentence in sentences for token in sentence]
        self.ids = (c.c_int32 * len(flat))(*flat)
        self.lens = (c.c_int64 * len(sentences))(*map(len, sentences))
        self.callback = c.CFUNCTYPE(c.c_int, c.c_void_p, c.c_int64, c.c_void_p, c.c_int64,
                                    c.c_double)(self.translation)
        self.run()

    def translation(self, _, sentence, ids, n, score):
        self.scores.append(score)
        return 0

    def describe(self):
        return f"{self.params.numel()} parameters"

    def run(self):
        self.scores = []
        options = libfoci.sized(TranslateOptions, beam=BEAM, penalty=PENALTY,
                                longest=self.case.longest, batch=self.case.batch)
        self.context.check(self.lib.foci_translate(
            self.model, c.c_int64(SENTENCES), self.ids, self.lens, c.byref(options),
            self.callback, None))

    def results(self):
        return [torch.tensor(self.scores)]

    def close(self):
        self.lib.foci_model_free(self.model)


def heads_of(x, w, b, heads):
    """[rows, len, width] as [rows, heads, len, width / heads]."""
    return F.linear(x, w, b).unflatten(-1, (heads, -1)).transpose(1, 2)


class PeerBeams(Nothing):
    def __init__(self, case, ours):
        self.case, self.sentences = case, case.sentences()
        self.model = Model(ours.start, case).eval()
        if case.dtype == "bf16":
            self.model = self.model.bfloat16()
        self.run()

    def encode(self, batch):
        """Keys and values of the sources for each block, and which of them there are."""
        lens = torch.tensor([len(s) for s in batch])
        ids = torch.zeros(len(batch), int(lens.max()), dtype=torch.long)
        for row, sentence in zip(ids, batch):
            row[:len(sentence)] = torch.tensor(sentence)
        there = (torch.arange(ids.shape[1])[None] < lens[:, None])[:, None, None]
        stack, heads = self.model.encoder, self.case.heads
        x = F.embedding(ids, self.model.embedding) + stack.positions[:ids.shape[1]]
        for block in stack.blocks:
            a, h = block.attention, block.norm1(x)
            q, k, v = (heads_of(h, w, b, heads)
                       for w, b in ((a.Wq, a.bq), (a.Wk, a.bk), (a.Wv, a.bv)))
            o = F.scaled_dot_product_attention(q, k, v, attn_mask=there)
            x = x + F.linear(o.transpose(1, 2).flatten(2), a.Wo, a.bo)
            h = F.gelu(F.linear(block.norm3(x), block.W1, block.b1))
            x = x + F.linear(h, block.W2, block.b2)
        x = stack.norm(x)
        crosses = [block.cross for block in self.model.decoder.blocks]
        return there, [(heads_of(x, a.Wk, a.bk, heads), heads_of(x, a.Wv, a.bv, heads))
                       for a in crosses]

    def step(self, at, tokens, cache, sources, there):
        """Logits of all hypotheses, [rows, vocab]."""
        case, stack, rows = self.case, self.model.decoder, tokens.numel()
        x = (F.embedding(tokens, self.model.embedding) + stack.positions[at])[:, None]
        for block, (keys, values), (k, v) in zip(stack.blocks, cache, sources):
            a, h = block.attention, block.norm1(x)
            keys[:, :, at:at + 1] = heads_of(h, a.Wk, a.bk, case.heads)
            values[:, :, at:at + 1] = heads_of(h, a.Wv, a.bv, case.heads)
            o = F.scaled_dot_product_attention(heads_of(h, a.Wq, a.bq, case.heads),
                                               keys[:, :, :at + 1], values[:, :, :at + 1])
            x = x + F.linear(o.transpose(1, 2).flatten(2), a.Wo, a.bo)
            a, h = block.cross, block.norm2(x).view(rows // BEAM, BEAM, -1)
            o = F.scaled_dot_product_attention(heads_of(h, a.Wq, a.bq, case.heads), k, v,
                                               attn_mask=there)
            o = o.transpose(1, 2).reshape(rows, 1, -1)
            x = x + F.linear(o, a.Wo, a.bo)
            h = F.gelu(F.linear(block.norm3(x), block.W1, block.b1))
            x = x + F.linear(h, block.W2, block.b2)
        return F.linear(stack.norm(x[:, 0]), self.model.embedding)

    def search(self, batch):
        case, n, rows = self.case, len(batch), len(batch) * BEAM
        there, sources = self.encode(batch)
        kind = self.model.embedding.dtype
        shape = (rows, case.heads, case.longest, case.width // case.heads)
        cache = [[torch.empty(shape, dtype=kind) for _ in range(2)]
                 for _ in self.model.decoder.blocks]
        scores = torch.full((n, BEAM), -torch.inf)
        scores[:, 0] = 0
        tokens = torch.full((rows,), BOS)
        first = torch.arange(n)[:, None] * BEAM
        for at in range(case.longest):
            logits = self.step(at, tokens, cache, sources, there)
            log_p = logits.float().log_softmax(-1).view(n, BEAM, -1)
            scores, best = (scores[:, :, None] + log_p).flatten(1).topk(BEAM)
            tokens = (best % case.vocab).flatten()
            order = (first + best // case.vocab).flatten()
            for pair in cache:
                pair[:] = [t.index_select(0, order) for t in pair]
        return scores[:, 0] / ((5 + case.longest) / 6) ** PENALTY

    @torch.inference_mode()
    def run(self):
        size = self.case.batch
        self.scores = torch.cat([self.search(self.sentences[i:i + size])
                                 for i in range(0, len(self.sentences), size)])

    def results(self):
        return [self.scores]


def generation():
    return [Generation(LM, 4, 256, 256, 8192, dtype, EAGER, Floor(5.0), Floor(5.0), batch=1)
            for dtype in ("bf16", "f32")]


def beams():
    return [Beam(TRANSLATE, 3, 256, 64, 8192, dtype, EAGER, Floor(3.0), Floor(3.0), batch=16)
            for dtype in ("bf16", "f32")]


GROUPS = {"generate": generation, "beam": beams}
