"""foci.torch.attention: right values and gradients, as an operator, and whatever a program may do."""
import gc
import multiprocessing
import os
import resource
import threading
import tracemalloc

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from conftest import Case, cases

import foci
import foci.torch
from foci._torch_ops import text_of

F = torch.nn.functional
forward_ad = torch.autograd.forward_ad
LONG = os.environ.get("FOCI_TEST_LONG")
DISCRETE = {"lsh", "routing"}  # a small step may change which keys are seen


def draw(*shape, seed=0, dtype=torch.float32, grad=False):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(dtype).requires_grad_(grad)


def qkv(*shape, **options):
    return tuple(draw(*shape, seed=seed, **options) for seed in (1, 2, 3))


def near(found, want, atol=2e-6):
    torch.testing.assert_close(found, want, atol=atol, rtol=0)


def tensors_of(case):
    return [None if a is None else torch.from_numpy(a * np.float32(0.5)) for a in (*case.arrays, case.options.get("x"))]


def call_of(case, given, params=None):
    q, k, v, x = given
    return foci.torch.attention(q, k, v, case.spec, causal=case.causal, x=x, lists=case.options.get("lists"), params=params)


# Values

@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("dtype, atol", [(torch.float32, 2e-6), (torch.bfloat16, 2e-2), (torch.float16, 1e-2)])
def test_equals_sdpa(causal, dtype, atol):
    given = qkv(2, 4, 33, 16, dtype=dtype, grad=True)
    o = foci.torch.attention(*given, causal=causal)
    want = F.scaled_dot_product_attention(*(t.detach().float() for t in given), is_causal=causal)
    near(o.float(), want, atol)
    d_o = draw(2, 4, 33, 16, seed=9, dtype=dtype)
    found = torch.autograd.grad(o, given, d_o)
    wide = [t.detach().float().requires_grad_() for t in given]
    wants = torch.autograd.grad(F.scaled_dot_product_attention(*wide, is_causal=causal), wide, d_o.float())
    for a, b in zip(found, wants):
        near(a.float(), b, 3 * atol)


def test_masks_and_groups_equal_sdpa():
    q, k, v = draw(2, 8, 9, 16), draw(2, 2, 13, 16, seed=1), draw(2, 2, 13, 24, seed=2)
    for mask in (draw(9, 13) > 0, draw(2, 1, 9, 13) > 0, draw(1, 8, 9, 13) > 0, draw(2, 1, 1, 13).expand(2, 1, 9, 13) > -1):
        mask[..., 0] = True
        near(foci.torch.attention(q, k, v, mask=mask),
             F.scaled_dot_product_attention(q, k, v, attn_mask=mask, enable_gqa=True))
    bias = draw(8, 9, 13, seed=5, grad=True)
    found = foci.torch.attention(q, k, v, bias=bias)
    want = F.scaled_dot_product_attention(q, k, v, attn_mask=bias, enable_gqa=True)
    near(found, want)
    near(torch.autograd.grad(found.sum() + found.square().sum(), bias)[0],
         torch.autograd.grad(want.sum() + want.square().sum(), bias)[0], 1e-5)
    lengths = torch.tensor([13, 4])
    near(foci.torch.attention(q, k, v, lengths=(None, lengths)),
         F.scaled_dot_product_attention(q, k, v, attn_mask=torch.arange(13) < lengths[:, None, None, None],
                                        enable_gqa=True))
    near(foci.torch.attention(q, k, v, "softmax scale(0.3)"),
         F.scaled_dot_product_attention(q, k, v, scale=0.3, enable_gqa=True))


def test_formulas():
    q, k, v = qkv(1, 2, 20, 8)
    phi = lambda t: F.elu(t) + 1
    weights = (phi(q) @ phi(k).mT).tril()
    near(foci.torch.attention(q, k, v, "linear", causal=True), weights @ v / weights.sum(-1, keepdim=True), 5e-6)
    logits = q @ k.mT / 8**0.5
    near(foci.torch.attention(q, k, v, "softmax cap(3)"), (3 * torch.tanh(logits / 3)).softmax(-1) @ v)
    sink = torch.tensor([0.5, -1.0], requires_grad=True)
    found = foci.torch.attention(q, k, v, "softmax sink", params={"sink": sink})
    room = torch.cat([logits, sink[None, :, None, None].expand(1, 2, 20, 1)], -1)
    want = room.softmax(-1)[..., :-1] @ v
    near(found, want)
    near(torch.autograd.grad(found.sum(), sink)[0], torch.autograd.grad(want.sum(), sink)[0], 1e-5)
    i = torch.arange(20)
    near(foci.torch.attention(q, k, v, "local(window=3)"),
         F.scaled_dot_product_attention(q, k, v, attn_mask=(i[:, None] - i).abs() <= 3))


@pytest.mark.parametrize("name, causal", cases(backward=True))
def test_gradcheck(name, causal):
    case = Case(name, causal)
    given = tensors_of(case)
    if name in DISCRETE:  # against the gradients that NumPy's side of the package gives
        leaves = [t.requires_grad_() for t in given if t is not None]
        d_o = draw(*leaves[-1].shape, seed=8)
        found = torch.autograd.grad(call_of(case, given), leaves, d_o)
        vjp = foci.attention_vjp(*(t.detach() for t in leaves), case.spec, **case.options)[1]
        for a, b in zip(found, vjp(d_o)[:3]):
            np.testing.assert_allclose(a, b, atol=1e-6)
        return
    plan = plan_of(case, given)
    params = torch.from_numpy(plan.params(3).flat.copy()) if plan.tensors else None
    leaves = [t for t in given if t is not None]
    used = slice(0, len(leaves))
    if params is not None and all(t.keep == "trained" for t in plan.tensors):
        leaves.append(params)

    def function(*inputs):
        rest = iter(inputs[used])
        return call_of(case, [None if t is None else next(rest) for t in given],
                       inputs[-1] if len(inputs) > used.stop else params)

    leaves = [t.clone().requires_grad_() for t in leaves]
    assert torch.autograd.gradcheck(function, leaves, eps=5e-3, atol=5e-3, rtol=2e-2, fast_mode=True, nondet_tol=0)


def plan_of(case, given):
    q, k, v, x = given
    return foci.Plan(case.spec, len_q=v.shape[2], dim=v.shape[3], heads=2 if q is None else q.shape[1],
                     kv_heads=v.shape[1], causal=case.causal, train=True, dim_x=0 if x is None else x.shape[-1],
                     lists=case.options.get("lists"))


@pytest.mark.parametrize("name, causal", cases())
def test_equals_numpy(name, causal):
    case = Case(name, causal)
    found = foci.torch.attention(*(None if a is None else torch.from_numpy(a) for a in case.arrays), case.spec,
                                 causal=causal, lists=case.options.get("lists"),
                                 x=None if "x" not in case.options else torch.from_numpy(case.options["x"]))
    np.testing.assert_array_equal(found.numpy(), foci.attention(*case.arrays, case.spec, **case.options))


# Memory

def test_strided_views_are_read_where_they_lie():
    wide = draw(2, 33, 3, 4, 16)
    q, k, v = (t.transpose(1, 2) for t in wide.unbind(2))
    want = F.scaled_dot_product_attention(q, k, v)
    o = foci.torch.attention(q, k, v)
    near(o, want)
    assert o.transpose(1, 2).is_contiguous()  # heads inside rows, as those of the queries
    near(foci.torch.attention(*wide.unbind(2), layout="bnhd"), want.transpose(1, 2))
    assert foci.torch.attention(*qkv(2, 4, 9, 8)).is_contiguous()
    near(foci.torch.attention(q[:, :, ::2], k, v), want[:, :, ::2])
    near(foci.torch.attention(q, k[:1].expand_as(k), v), F.scaled_dot_product_attention(q, k[:1].expand_as(k), v))
    odd = draw(2, 4, 33, 32)[..., ::2]  # elements are not adjacent
    near(foci.torch.attention(odd, k, v), F.scaled_dot_product_attention(odd, k, v))
    flat = draw(33, 16)
    near(foci.torch.attention(flat, flat, flat), F.scaled_dot_product_attention(flat, flat, flat))


def test_negated_views():
    """Tensors whose memory has their numbers with the other sign."""
    q, k, v = qkv(2, 4, 9, 8, grad=True)
    turned = (-q).detach()._neg_view()
    assert turned.is_neg()
    want, found = foci.torch.attention(q, k, v), foci.torch.attention(turned, k, v)
    near(found, want)
    d_o = draw(2, 4, 9, 8)
    for a, b in zip(torch.autograd.grad(want, (k, v), d_o), torch.autograd.grad(found, (k, v), (-d_o)._neg_view())):
        near(a, b)
    with pytest.raises(foci.ArgumentError, match="q.resolve_neg"):
        foci.attention(turned, k.detach(), v.detach())
    x = draw(2, 9, 8, grad=True)
    attn = foci.torch.Attention(8, 2, causal=True, batch_first=True)
    y = attn(x)[0]
    near(attn((-x).detach()._neg_view())[0], y)
    grads = torch.autograd.grad(y, x, d_o[0, :2] * 2, retain_graph=True), torch.autograd.grad(y, x, (-2 * d_o[0, :2])._neg_view())
    near(*(g[0] for g in grads))
    near(foci.torch.DecodeState(attn, batch=2).step((-x).detach()._neg_view()), y)


def test_gradients_of_views():
    for make in (lambda t: t.transpose(1, 2), lambda t: t.transpose(1, 2)[:1].expand(2, 4, 9, 16),
                 lambda t: t.transpose(1, 2).flip(-1), lambda t: t.transpose(1, 2)[..., ::2],
                 lambda t: t[:, :1].transpose(1, 2).expand(2, 4, 9, 16)):
        base = draw(2, 9, 4, 16, grad=True)
        grads = []
        for attend in (foci.torch.attention, F.scaled_dot_product_attention):
            t = make(base)
            grads.append(torch.autograd.grad(attend(t, t * 0.5, t).square().sum(), base)[0])
        torch.testing.assert_close(*grads, atol=1e-5, rtol=1e-5)
    wide = draw(2, 9, 3, 4, 16, grad=True)
    both = [torch.autograd.grad(a(*(t.transpose(1, 2) for t in wide.unbind(2))).sum(), wide)[0]
            for a in (foci.torch.attention, F.scaled_dot_product_attention)]
    near(*both, 1e-5)


@pytest.mark.parametrize("shape", [(0, 4, 3, 8), (2, 4, 0, 8), (2, 0, 3, 8)])
def test_nothing(shape):
    given = qkv(*shape, grad=True)
    o = foci.torch.attention(*given, causal=True)
    assert o.shape == shape
    o.sum().backward()
    assert all(t.grad.shape == shape for t in given)


def test_no_keys():
    q, k = draw(1, 2, 3, 8, grad=True), draw(1, 2, 0, 8, grad=True)
    o = foci.torch.attention(q, k, k)
    assert not o.any()
    o.sum().backward()
    assert not q.grad.any()


def test_inputs_are_kept_for_backward():
    q, k, v = qkv(1, 2, 9, 8, grad=True)
    want = torch.autograd.grad(foci.torch.attention(q, k, v).sum(), q)[0]
    o = foci.torch.attention(q, k.clone(), v.clone())
    gc.collect()
    draw(1, 2, 9, 8)
    near(torch.autograd.grad(o.sum(), q)[0], want, 0)
    leaf = q.detach().clone().requires_grad_()
    copy = leaf * 1
    o = foci.torch.attention(copy, k, v)
    with torch.no_grad():
        copy.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        o.sum().backward()


def test_no_leaks():
    q, k, v = qkv(1, 2, 9, 8, grad=True)
    calls = 100_000 if LONG else 3000

    def repeat(n):
        for i in range(n):
            foci.torch.attention(q, k, v, "softmax rope", causal=True).sum().backward()
            q.grad = k.grad = v.grad = None
            with torch.no_grad():
                foci.torch.attention(q[:, :, : 1 + i % 9], k, v)
        gc.collect()

    repeat(200)
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0], resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    repeat(calls)
    after = tracemalloc.get_traced_memory()[0], resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    tracemalloc.stop()
    assert after[0] - before[0] < 100_000
    assert after[1] - before[1] < 8192  # KiB


# Refusals

def test_refusals():
    with pytest.raises(foci.DTypeError, match="spec is a list"):
        foci.torch.attention(*qkv(2, 4, 9, 8), ["softmax"])
    with pytest.raises(foci.DTypeError, match="q is a ndarray: it has to be a tensor; foci.attention takes arrays"):
        foci.torch.attention(*(t.numpy() for t in qkv(2, 4, 9, 8)))
    q, k, v = qkv(1, 2, 9, 8)
    with pytest.raises(foci.DTypeError, match="q has dtype torch.float64"):
        foci.torch.attention(q.double(), k.double(), v.double())
    with pytest.raises(foci.DTypeError, match="k has dtype torch.bfloat16, q has torch.float32"):
        foci.torch.attention(q, k.bfloat16(), v)
    with pytest.raises(foci.ArgumentError, match="heads differ: k 1, v 2"):
        foci.torch.attention(q, k[:, :1], v)
    with pytest.raises(foci.ArgumentError, match="has shape"):
        foci.torch.attention(q[0, 0, 0], k, v)
    with pytest.raises(foci.SpecError, match='unknown mechanism "sofmax"; the nearest is "softmax"'):
        foci.torch.attention(q, k, v, "sofmax")
    with pytest.raises(foci.DTypeError, match="spec is a int"):
        foci.torch.attention(q, k, v, 3)
    with pytest.raises(foci.ArgumentError, match="k is not given|k"):
        foci.torch.attention(q, None, v)
    with pytest.raises(foci.DTypeError, match="mask has dtype torch.float32"):
        foci.torch.attention(q, k, v, mask=draw(9, 9))
    with pytest.raises(foci.ArgumentError, match="mask has shape"):
        foci.torch.attention(q, k, v, mask=torch.ones(4, 9, dtype=torch.bool))
    with pytest.raises(foci.ArgumentError, match="mask has shape .1, 3, 9, 9., bias .1, 2, 9, 9.: batch and heads"):
        foci.torch.attention(q, k, v, mask=torch.ones(3, 9, 9, dtype=torch.bool), bias=draw(2, 9, 9))
    with pytest.raises(foci.ArgumentError, match="lengths .of q. has shape"):
        foci.torch.attention(q, k, v, lengths=[1, 2, 3])
    with pytest.raises(foci.ArgumentError, match="len"):
        foci.torch.attention(q, k, v, lengths=[10])
    for lengths in (torch.tensor([2**32 + 3]), [2**32 + 3]):
        with pytest.raises(foci.ArgumentError, match="it may be 0 to 9"):
            foci.torch.attention(q, k, v, lengths=lengths)
    with pytest.raises(foci.DTypeError, match="lengths has dtype torch.float32"):
        foci.torch.attention(q, k, v, lengths=[1.5])
    for params, sentence in (([0, 0], "params is a list"), ({"sink": 0.0}, "params: sink is a float")):
        with pytest.raises(foci.DTypeError, match=sentence):
            foci.torch.attention(q, k, v, "softmax sink", params=params)
    with pytest.raises(foci.ArgumentError, match='there is no parameter "sunk"'):
        foci.torch.attention(q, k, v, "softmax sink", params={"sunk": torch.zeros(2)})
    with pytest.raises(foci.ArgumentError, match="sink has shape"):
        foci.torch.attention(q, k, v, "softmax sink", params={"sink": torch.zeros(3)})
    with pytest.raises(foci.DTypeError, match="device"):
        foci.torch.Attention(8, 2, device="cuda")


def test_other_devices():
    class Elsewhere:
        is_cpu, device = False, "cuda:0"

    with pytest.raises(foci.DTypeError, match="k is on device cuda:0: foci.torch computes on the CPU"):
        foci._torch_calls.check_device(Elsewhere(), "k")
    meta = torch.empty(2, 4, 9, 8, device="meta")
    with pytest.raises(foci.DTypeError, match="q is on device meta"):
        foci.torch.attention(meta, meta, meta)
    with pytest.raises(foci.DTypeError, match="q has layout torch.sparse_coo"):
        foci.torch.attention(*(t.to_sparse() for t in qkv(1, 2, 9, 8)))


def test_twice():
    q, k, v = qkv(1, 2, 9, 8, grad=True)
    for attend in (foci.torch.attention, lambda *a: torch.ops.foci.attention(
            *a, None, None, [], None, None, None, None, None, None,
            text_of("softmax", None, False, 0, False, 0, (), ()), 0.0, True)[0]):
        grad, = torch.autograd.grad(attend(q, k, v).square().sum(), q, create_graph=True)
        with pytest.raises(foci.UnsupportedError, match="cannot be differentiated again"):
            grad.sum().backward()


def test_forward_mode():
    q, k, v = qkv(1, 2, 9, 8)
    attn = foci.torch.Attention(8, 2, batch_first=True)
    for function, x in ((lambda q: foci.torch.attention(q, k, v), q), (lambda x: attn(x)[0], q[0])):
        with pytest.raises(foci.UnsupportedError, match="forward mode"):
            torch.func.jvp(function, (x,), (x,))
        with forward_ad.dual_level():
            function(x)
            with pytest.raises(foci.UnsupportedError, match="forward mode"):
                function(forward_ad.make_dual(x, x))
        with pytest.raises(foci.UnsupportedError, match="forward mode"):
            torch.func.jacfwd(function)(x)
    with pytest.raises(RuntimeError, match="Batching rule"):
        torch.vmap(lambda q: foci.torch.attention(q, q, q))(q[None])


# Modes

def test_no_grad():
    given = qkv(1, 2, 9, 8, grad=True)
    with torch.no_grad():
        assert not foci.torch.attention(*given).requires_grad
    with torch.inference_mode():
        o = foci.torch.attention(*given)
        assert o.is_inference()
    assert foci.torch.attention(given[0].detach(), given[1].detach(), given[2]).requires_grad
    q, k, v = given
    o = foci.torch.attention(q, k.detach(), v.detach())
    o.sum().backward()
    assert q.grad is not None and k.grad is None


def test_autocast():
    given = qkv(1, 2, 33, 16, grad=True)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        o = foci.torch.attention(*given)
        assert o.dtype == torch.bfloat16
        near(o, foci.torch.attention(*(t.bfloat16() for t in given)), 0)
    o.float().sum().backward()
    assert given[0].grad.dtype == torch.float32


def test_dropout():
    q, k, v = qkv(1, 2, 33, 8, grad=True)
    torch.manual_seed(5)
    a = foci.torch.attention(q, k, v, dropout=0.5)
    b = foci.torch.attention(q, k, v, dropout=0.5)
    torch.manual_seed(5)
    assert torch.equal(a, foci.torch.attention(q, k, v, dropout=0.5)) and not torch.equal(a, b)
    fixed = foci.torch.attention(q, k, v, dropout=0.5, dropout_seed=3)
    assert torch.equal(fixed, foci.torch.attention(q, k, v, dropout=0.5, dropout_seed=3))
    assert torch.autograd.gradcheck(lambda q: foci.torch.attention(q, k, v, dropout=0.5, dropout_seed=3),
                                    q.detach().requires_grad_(), eps=1e-2, atol=5e-3, rtol=2e-2, fast_mode=True)


def run_in_child(queue):
    q = torch.ones(1, 2, 9, 8)
    queue.put(foci.torch.attention(q, q, q).sum().item())


def test_fork():
    q = torch.ones(1, 2, 9, 8)
    want = foci.torch.attention(q, q, q).sum().item()
    context = multiprocessing.get_context("fork")
    queue = context.Queue()
    child = context.Process(target=run_in_child, args=(queue,))
    child.start()
    assert queue.get(timeout=60) == want
    child.join()


class Attended(torch.utils.data.Dataset):
    def __len__(self):
        return 8

    def __getitem__(self, i):
        q = draw(1, 2, 9, 8, seed=i)
        return foci.torch.attention(q, q, q, "local(window=3) rope", causal=True)[0]


def test_data_loader():
    data = Attended()
    want = torch.stack([data[i] for i in range(8)])
    loader = torch.utils.data.DataLoader(data, batch_size=4, num_workers=2)
    assert torch.equal(torch.cat(list(loader)), want)


def test_threads():
    given = qkv(1, 2, 33, 8, grad=True)
    specs = ("softmax", "local(window=5)", "linear", "softmax rope")
    want = {s: torch.autograd.grad(foci.torch.attention(*given, s).sum(), given) for s in specs}
    bad = []

    def work(i):
        for n in range(50):
            spec = specs[(i + n) % 4]
            mine = [t.detach().requires_grad_() for t in given]
            rows = 1 + (i * 50 + n) % 33  # plans come and go
            foci.torch.attention(mine[0][:, :, :rows], mine[1][:, :, :rows], mine[2][:, :, :rows], spec)
            found = torch.autograd.grad(foci.torch.attention(*mine, spec).sum(), mine)
            if not all(torch.equal(a, b) for a, b in zip(found, want[spec])):
                bad.append((i, n))

    threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not bad


def test_set_threads():
    given = qkv(1, 2, 33, 8)
    before, want = foci.get_threads(), foci.torch.attention(*given)
    try:
        foci.set_threads(1)
        assert torch.equal(foci.torch.attention(*given), want)
    finally:
        foci.set_threads(before)


# The operator

def op_args(given, how=(), **named):
    fields = {"spec": "softmax", "layout": None, "causal": True, "memory": 0, "fast": False, "seed": 0,
              "lists": (), "names": ()}
    fields.update(how)
    extra = [named.get(name) for name in ("mask", "len_q", "len_k", "docs", "words", "dropout_seed")]
    return (*given, None, named.get("bias"), named.get("params", []), *extra, text_of(**fields), 0.0,
            any(t.requires_grad for t in given))


@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize("what", ["plain", "strided", "mask", "lengths", "params", "bias"])
def test_opcheck(grad, what):
    given, how, named = qkv(2, 4, 9, 8, grad=grad), {}, {}
    if what == "strided":
        given = tuple(draw(2, 9, 4, 8, seed=i).transpose(1, 2).requires_grad_(grad) for i in range(3))
    if what == "mask":
        how, named = {"causal": False}, {"mask": (draw(2, 1, 9, 9) > 0).view(torch.uint8)}
    if what == "lengths":
        named = {"len_q": torch.tensor([9, 4], dtype=torch.int32), "len_k": torch.tensor([9, 4], dtype=torch.int32)}
    if what == "params":
        how = {"spec": "softmax sink", "names": ("sink",)}
        named = {"params": [torch.zeros(4, requires_grad=grad)]}
    if what == "bias":
        named = {"bias": draw(1, 4, 9, 9, grad=grad)}
    torch.library.opcheck(torch.ops.foci.attention.default, op_args(given, how, **named))


def test_opcheck_backward():
    given = qkv(2, 4, 9, 8, grad=True)
    args = op_args(given)
    o, saved = (t.detach() for t in torch.ops.foci.attention(*args))
    inputs = (draw(2, 4, 9, 8), *(t.detach() for t in given), *args[3:12], o, saved, [True] * 3 + [False] * 2, *args[12:14])
    torch.library.opcheck(torch.ops.foci.attention_backward.default, inputs)


def test_an_operator_by_itself_refuses():
    given = qkv(2, 4, 9, 8, grad=True)
    for named in ({"len_q": torch.tensor([9], dtype=torch.int32)}, {"len_q": torch.tensor([9, 9])},
                  {"mask": torch.ones(9, 1, 9, 1, dtype=torch.bool).expand(9, 1, 9, 9)}, {"bias": draw(1, 4, 9, 9).double()}):
        with pytest.raises(foci.ArgumentError, match="packed|has shape"):
            torch.ops.foci.attention(*op_args(given, {"causal": False}, **named))
    args = op_args(given)
    o, saved = (t.detach() for t in torch.ops.foci.attention(*args))
    with pytest.raises(foci.ArgumentError, match="not what the forward call"):
        torch.ops.foci.attention_backward(o, *(t.detach() for t in given), *args[3:12], o, saved[:4], [True] * 3 + [False] * 2,
                                          *args[12:14])


@pytest.mark.parametrize("what", ["plain", "mask", "params", "lengths", "dropout"])
def test_compile(what):
    given = qkv(2, 4, 9, 8, grad=True)
    sink = torch.zeros(4, requires_grad=True)
    mask = draw(9, 9) > -1
    lengths = torch.tensor([9, 3])

    def function(q, k, v):
        if what == "mask":
            return foci.torch.attention(q * 2, k, v, mask=mask) + 1
        if what == "params":
            return foci.torch.attention(q * 2, k, v, "softmax rope sink", causal=True, params={"sink": sink})
        if what == "lengths":
            return foci.torch.attention(q, k, v, foci.local(window=3) | foci.rope(), lengths=lengths)
        if what == "dropout":
            return foci.torch.attention(q, k, v, dropout=0.5, dropout_seed=4)
        return foci.torch.attention(q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2), layout="bnhd") * 2

    compiled = torch.compile(function, fullgraph=True, backend="aot_eager" if what != "plain" else "inductor")
    want, found = function(*given), compiled(*given)
    near(found, want)
    for a, b in zip(torch.autograd.grad(found.square().sum(), given), torch.autograd.grad(want.square().sum(), given)):
        near(a, b, 1e-5)


def test_compile_of_any_length():
    compiled = torch.compile(lambda *t: foci.torch.attention(*t, causal=True), fullgraph=True, backend="aot_eager",
                             dynamic=True)
    for n in (5, 9, 12):
        given = qkv(1, 2, n, 8)
        near(compiled(*given), foci.torch.attention(*given, causal=True), 0)


def test_dispatch_modes_see_it():
    from torch.utils._python_dispatch import TorchDispatchMode

    seen = []

    class Mode(TorchDispatchMode):
        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            seen.append(str(function))
            return function(*args, **(kwargs or {}))

    with Mode():
        foci.torch.attention(*qkv(1, 2, 9, 8))
    assert "foci.attention.default" in seen
    with torch._subclasses.FakeTensorMode() as mode:
        fake = [mode.from_tensor(t) for t in qkv(1, 2, 9, 8)]
        assert foci.torch.attention(*fake).shape == (1, 2, 9, 8)
