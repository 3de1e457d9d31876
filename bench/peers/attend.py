"""One plan of libfoci on tensors of PyTorch, [1][head][row][dim], to be timed."""
import torch

import libfoci
from case import Nothing


class Foci(Nothing):
    def __init__(self, context, spec, tensors, dtype="bf16", causal=False,
                 backward=False, lists=None, docs=None):
        q, k, v, dout = tensors
        _, h, n, d = q.shape
        layout = libfoci.Layout(batch=h * n * d, row=d, head=n * d)
        lists = libfoci.lists(lists or {})
        problem = libfoci.sized(
            libfoci.Problem,
            dtype=libfoci.BF16 if dtype == "bf16" else libfoci.F32,
            flags=(libfoci.CAUSAL * causal | libfoci.TRAIN * backward |
                   libfoci.FAST * (dtype == "f32fast")),
            batch=1, heads=h, len_q=n, len_k=n, dim_qk=d, q=layout, k=layout, v=layout,
            o=layout, max_docs=len(docs) - 1 if docs else 0, lists=lists,
            n_lists=len(lists) if lists else 0)
        self.plan = context.plan(spec, problem)
        self.backward = backward
        self.o = torch.empty_like(q)
        self.grads = [torch.empty_like(q) for _ in range(3)]
        work = torch.empty(self.plan.work_bytes + 64, dtype=torch.uint8)
        saved = torch.empty(self.plan.saved_bytes + 64, dtype=torch.uint8)
        docs = torch.tensor(docs or [], dtype=torch.int32)
        self.keep = (tensors, work, saved, docs)
        aligned = [(t.data_ptr() + 63) // 64 * 64 for t in (work, saved)]
        self.io = libfoci.sized(
            libfoci.IO, q=q.data_ptr(), k=k.data_ptr(), v=v.data_ptr(),
            o=self.o.data_ptr(), work=aligned[0], params=self.plan.params(seed=1),
            saved=aligned[1] if backward else None,
            docs=docs.data_ptr() if len(docs) else None, n_docs=max(len(docs) - 1, 0))
        dq, dk, dv = (g.data_ptr() for g in self.grads)
        self.d = libfoci.sized(libfoci.Grads, d_o=dout.data_ptr(), dq=dq, dk=dk, dv=dv)
        self.plan.forward(self.io)

    def run(self):
        if self.backward:
            self.plan.backward(self.io, self.d)
        else:
            self.plan.forward(self.io)

    def results(self):
        return self.grads if self.backward else [self.o]

    def close(self):
        self.plan.close()
