"""foci.torch.Attention and DecodeState: beside nn.MultiheadAttention, and beside themselves."""
import copy
import gc
import pickle

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from conftest import ROWS, WIDTH, cases
from test_torch import draw, near, qkv

import foci
import foci.torch

MIX = "2*softmax frozen(orthogonal) rope + 2*performer(features=8) + 4*local(window=3) sink"
# arguments that suit 24 rows, of mechanisms that layers have
SPECS = ("softmax", MIX, "linear", "lsh(buckets=4, shared=1)", "dynconv", "retention(learn=1)", "fixed(pattern=left)",
         "synthesizer(kind=dense, max=24)", "routed(local(window=4), routes=2)", "softmax txl")


def pair(**options):
    """A layer of PyTorch's and one of foci's with its weights."""
    torch.manual_seed(1)
    theirs = torch.nn.MultiheadAttention(32, 4, batch_first=True, **options)
    torch.nn.init.normal_(theirs.in_proj_bias) if theirs.in_proj_bias is not None else None
    ours = foci.torch.Attention(32, 4, batch_first=True, **options)
    weights = theirs.in_proj_weight.chunk(3) if theirs.in_proj_weight is not None else (
        theirs.q_proj_weight, theirs.k_proj_weight, theirs.v_proj_weight)
    state = {f"W{name}": w.T for name, w in zip("qkv", weights)}
    state["Wo"] = theirs.out_proj.weight.T
    if theirs.in_proj_bias is not None:
        state.update({f"b{name}": b for name, b in zip("qkv", theirs.in_proj_bias.chunk(3))}, bo=theirs.out_proj.bias)
    ours.load_state_dict({name: t.detach().reshape(ours.state_dict()[name].shape) for name, t in state.items()})
    return ours, theirs


def test_equals_multihead_attention():
    ours, theirs = pair()
    x = draw(2, 9, 32, grad=True)
    hidden = torch.triu(torch.ones(9, 9, dtype=torch.bool), 1)
    padding = torch.arange(9) >= torch.tensor([9, 5])[:, None]
    for options in ({}, {"attn_mask": hidden}, {"key_padding_mask": padding}, {"attn_mask": draw(9, 9, seed=3)},
                    {"attn_mask": hidden, "key_padding_mask": padding}, {"attn_mask": draw(8, 9, 9, seed=3)},
                    {"attn_mask": hidden, "is_causal": True}):
        y, weights = ours(x, x, x, need_weights=True, **options)
        want, want_weights = theirs(x, x, x, **options)
        near(y, want)
        near(weights, want_weights)
        d_y = draw(2, 9, 32, seed=4)
        ours.zero_grad(), theirs.zero_grad()
        near(torch.autograd.grad(y, x, d_y, retain_graph=True)[0], torch.autograd.grad(want, x, d_y, retain_graph=True)[0])
        y.backward(d_y), want.backward(d_y)
        near(torch.cat([ours.Wq.grad, ours.Wk.grad, ours.Wv.grad], 1), theirs.in_proj_weight.grad.T, 1e-5)
        near(ours.Wo.grad, theirs.out_proj.weight.grad.T, 1e-5)
        near(ours.bo.grad, theirs.out_proj.bias.grad, 1e-5)
    assert ours(x)[1] is None
    near(ours(x[0])[0], theirs(x[0], x[0], x[0])[0])
    each = ours(x, need_weights=True, average_attn_weights=False)[1]
    assert each.shape == (2, 4, 9, 9)
    ours.batch_first = theirs.batch_first = False
    near(ours(x)[0], theirs(x, x, x)[0])


def test_cross_attention():
    theirs = torch.nn.MultiheadAttention(32, 4, kdim=24, vdim=24, bias=False, batch_first=True)
    ours = foci.torch.Attention(32, 4, kdim=24, bias=False, batch_first=True)
    ours.load_state_dict({"Wq": theirs.q_proj_weight.T, "Wk": theirs.k_proj_weight.T, "Wv": theirs.v_proj_weight.T,
                          "Wo": theirs.out_proj.weight.T})
    x, source = draw(2, 5, 32, grad=True), draw(2, 7, 24, seed=1, grad=True)
    y, want = ours(x, source)[0], theirs(x, source, source)[0]
    near(y, want)
    for a, b in zip(torch.autograd.grad(y.square().sum(), (x, source)), torch.autograd.grad(want.square().sum(), (x, source))):
        near(a, b, 1e-5)


@pytest.mark.parametrize("spec", SPECS)
def test_gradcheck(spec):
    torch.manual_seed(2)
    heads = 8 if spec == MIX else 2
    attn = foci.torch.Attention(WIDTH, heads, spec=spec, causal=True, batch_first=True, max_len=ROWS)
    x = draw(1, ROWS, WIDTH, grad=True)
    y = attn(x)[0]
    assert y.shape == x.shape
    y.sum().backward()
    assert all(p.grad is not None for p in attn.parameters())
    if "lsh" not in spec:  # a small step changes which keys are seen
        assert torch.autograd.gradcheck(lambda x, *_: attn(x)[0], (x, *attn.parameters()), eps=5e-3, atol=1e-2, rtol=2e-2,
                                        fast_mode=True, nondet_tol=0)


@pytest.mark.parametrize("name, causal", cases())
def test_every_mechanism_is_a_layer(name, causal):
    from conftest import ARGUMENTS, LISTS

    spec = "linformer(rank=4, block=8)" if name == "linformer" and causal else ARGUMENTS.get(name, name)
    options = {"lists": LISTS.get(name), "max_len": ROWS, "batch_first": True}
    attn = foci.torch.Attention(WIDTH, 2, spec=spec, causal=causal, **options)
    attn.reset_parameters(3)
    layer = foci.Layer(spec, width=WIDTH, heads=2, causal=causal, biases=True, longest=ROWS, lists=LISTS.get(name))
    want = layer(draw(1, ROWS, WIDTH).numpy(), params=layer.init(3))
    np.testing.assert_array_equal(attn(draw(1, ROWS, WIDTH))[0].detach(), want)


def test_state_dict():
    attn = foci.torch.Attention(32, 8, spec=MIX, batch_first=True)
    names = set(attn.state_dict())
    assert {"0.Wv", "1.Wq", "1.omega", "2.sink", "Wo", "bo"} <= names and "0.Wq" not in names
    buffers = dict(attn.named_buffers())
    assert {"0.Wq", "0.Wk", "1.omega"} <= set(buffers) and "1.omega" not in dict(attn.named_parameters())
    layer = foci.Layer(MIX, width=32, heads=8, biases=True, longest=9)
    np.testing.assert_array_equal(buffers["0.Wq"], layer.frozen["0.Wq"])
    assert set(layer.params) == names and all(layer.params[n].shape == t.shape for n, t in attn.state_dict().items())
    other = foci.torch.Attention(32, 8, spec=MIX, batch_first=True, seed=1)
    assert not torch.equal(dict(other.named_buffers())["0.Wq"], buffers["0.Wq"])
    x = draw(2, 9, 32)
    again = foci.torch.Attention(32, 8, spec=MIX, batch_first=True)
    again.load_state_dict(attn.state_dict())
    y = attn(x)[0]
    for twin in (again, copy.deepcopy(attn), pickle.loads(pickle.dumps(attn))):
        assert torch.equal(twin(x)[0], y)
    torch.manual_seed(3)
    a = foci.torch.Attention(32, 8)
    torch.manual_seed(3)
    assert torch.equal(a.Wq, foci.torch.Attention(32, 8).Wq)


def test_saved_weights_run_elsewhere(tmp_path):
    safetensors = pytest.importorskip("safetensors.torch")
    attn = foci.torch.Attention(32, 8, spec=MIX, causal=True, batch_first=True)
    safetensors.save_file(attn.state_dict(), tmp_path / "layer.safetensors")
    x = draw(1, 9, 32)
    np.save(tmp_path / "x.npy", x.numpy())
    foci.command("run", MIX, "--x", str(tmp_path / "x.npy"), "--heads", "8", "--causal", "--biases", "--params",
                 str(tmp_path / "layer.safetensors"), "--out", str(tmp_path / "y.npy"))
    np.testing.assert_array_equal(np.load(tmp_path / "y.npy").reshape(1, 9, 32), attn(x)[0].detach())


def test_memory_that_processes_share():
    attn = foci.torch.Attention(32, 4, batch_first=True)
    x = draw(2, 9, 32)
    want = attn(x)[0]
    attn.share_memory()
    assert all(p.is_shared() for p in attn.parameters())
    assert torch.equal(attn(x)[0], want)
    assert attn._tensors()[1].data_ptr() == attn._tensors()[0].data_ptr() + 4 * attn._how.stored[1].offset


def test_training_lowers_the_loss():
    torch.manual_seed(0)
    attn = foci.torch.Attention(32, 4, spec="4*local(window=4) rope", causal=True, batch_first=True)
    flat = attn.Wq.data_ptr()
    optimizer = torch.optim.AdamW(attn.parameters(), lr=1e-2)
    x, want = draw(4, 16, 32), draw(4, 16, 32, seed=1)
    losses = []
    for _ in range(30):
        loss = (attn(x)[0] - want).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.8 * losses[0]
    assert attn.Wq.data_ptr() == flat  # calls still read the weights where they lie


def test_dtypes():
    attn = foci.torch.Attention(32, 4, batch_first=True)
    x = draw(2, 9, 32)
    want = attn(x)[0]
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = attn(x)[0]
    assert y.dtype == torch.bfloat16
    near(y.float(), want, 2e-2)
    y.float().sum().backward()
    assert attn.Wq.grad.dtype == torch.float32
    half = copy.deepcopy(attn).to(torch.bfloat16)
    near(half(x.bfloat16())[0].float(), want, 2e-2)
    half(x.bfloat16())[0].float().sum().backward()
    assert half.Wq.grad.dtype == torch.bfloat16
    near(half.float()(x)[0], want, 2e-2)


@pytest.mark.parametrize("which", ["dropout", "output_dropout"])
def test_dropout(which):
    attn = foci.torch.Attention(32, 4, batch_first=True, **{which: 0.5})
    x = draw(2, 9, 32)
    a, b = attn(x)[0], attn(x)[0]
    assert not torch.equal(a, b)
    attn.eval()
    assert torch.equal(attn(x)[0], attn(x)[0])


def test_advance_and_calibrate():
    attn = foci.torch.Attention(WIDTH, 2, spec="routing(clusters=3)", batch_first=True)
    before = attn.mu.clone()
    attn.advance(draw(1, ROWS, WIDTH))
    assert not torch.equal(attn.mu, before)
    attn = foci.torch.Attention(WIDTH, 2, spec="performer(kind=favor++, features=8)", causal=True, batch_first=True)
    attn.calibrate(draw(1, ROWS, WIDTH))
    assert attn(draw(1, ROWS, WIDTH))[0].isfinite().all()


@pytest.mark.parametrize("spec, heads", [("softmax", 4), (MIX, 8)])
def test_opcheck(spec, heads):
    attn = foci.torch.Attention(32, heads, spec=spec, batch_first=True)
    params = [t.detach().clone().requires_grad_() for t in attn._tensors()]
    x = draw(2, 9, 32, grad=True)
    args = (x, None, None, params, None, None, None, None, None, None, attn._text, True, True, False)
    torch.library.opcheck(torch.ops.foci.layer.default, args)
    frozen = [t.detach() for t in params]
    torch.library.opcheck(torch.ops.foci.layer.default, (x.detach(), None, None, frozen, *args[4:11], False, True, False))
    y, saved = (t.detach() for t in torch.ops.foci.layer(*args))
    torch.library.opcheck(torch.ops.foci.layer_backward.default, (
        draw(2, 9, 32), x.detach(), None, None, frozen, *args[4:11], saved, y, True, False, [True, False, False, True]))


def test_an_operator_by_itself_refuses():
    attn = foci.torch.Attention(32, 4, batch_first=True)
    params, x = [t.detach() for t in attn._tensors()], draw(4, 9, 32)

    def call(x, source=None, bias=None, mask=None, lens=None, words=None, train=False):
        return torch.ops.foci.layer(x, source, bias, params, mask, lens, None, None, words, None, attn._text, train, False,
                                    False)

    one = torch.ones(1, dtype=torch.int32)
    for given, sentence in (({"lens": one}, "lengths has shape"), ({"lens": one.expand(4).long()}, "packed"),
                            ({"words": one}, "words has shape"), ({"source": x}, "source is given"),
                            ({"bias": draw(1, 1, 9, 8)}, "bias has shape"), ({"bias": draw(1, 1, 9, 9).double()}, "packed"),
                            ({"bias": draw(1, 1, 9, 9), "mask": torch.ones(4, 4, 9, 9, dtype=torch.bool)}, "have to agree"),
                            ({"x": draw(4, 9, 16)}, "x has shape"), ({"x": draw(4, 32, 9).transpose(1, 2)}, "not packed")):
        with pytest.raises(foci.ArgumentError, match=sentence):
            call(**{"x": x, **given})
    y, saved = call(x, train=True)
    for wrong in ((y, saved[:4], y), (y[:1], saved, y), (y, saved, y[:1])):
        with pytest.raises(foci.ArgumentError, match="not what the forward call"):
            torch.ops.foci.layer_backward(wrong[0], x, None, None, params, *[None] * 6, attn._text, *wrong[1:], False, False,
                                          [True, False, False, True])
    compiled = torch.compile(lambda x: attn(x, lengths=[3])[0], backend="aot_eager")
    with pytest.raises(Exception, match="lengths has shape"):
        compiled(x)


@pytest.mark.parametrize("spec, heads", [("softmax", 4), (MIX, 8)])
def test_compile(spec, heads):
    attn = foci.torch.Attention(32, heads, spec=spec, causal=True, batch_first=True)
    compiled = torch.compile(lambda x: attn(x * 2)[0] + x, fullgraph=True, backend="aot_eager")
    x = draw(2, 9, 32, grad=True)
    grads = []
    for function in (compiled, lambda x: attn(x * 2)[0] + x):
        attn.zero_grad()
        x.grad = None
        function(x).square().sum().backward()
        grads.append([x.grad.clone(), *(p.grad.clone() for p in attn.parameters())])
    for a, b in zip(*grads):
        torch.testing.assert_close(a, b, atol=1e-5, rtol=1e-5)


def test_twice():
    attn = foci.torch.Attention(32, 4, batch_first=True)
    x = draw(2, 9, 32, grad=True)
    grad, = torch.autograd.grad(attn(x)[0].square().sum(), x, create_graph=True)
    with pytest.raises(foci.UnsupportedError, match="cannot be differentiated again"):
        grad.sum().backward()


def test_refusals():
    attn = foci.torch.Attention(32, 4, batch_first=True)
    x = draw(2, 9, 32)
    with pytest.raises(foci.UnsupportedError, match="add_bias_kv"):
        foci.torch.Attention(32, 4, add_bias_kv=True)
    with pytest.raises(foci.UnsupportedError, match="vdim=16"):
        foci.torch.Attention(32, 4, vdim=16)
    with pytest.raises(foci.ArgumentError, match="say cross=True"):
        attn(x, x.clone())
    with pytest.raises(foci.UnsupportedError, match="value is another tensor"):
        attn(x, x, x.clone())
    with pytest.raises(foci.ArgumentError, match="query has shape"):
        attn(draw(2, 9, 31))
    with pytest.raises(foci.DTypeError, match="query has dtype torch.float64"):
        attn(x.double())
    with pytest.raises(foci.ArgumentError, match="lengths has shape"):
        attn(x, lengths=[1, 2, 3])
    with pytest.raises(foci.SpecError, match="unknown mechanism"):
        foci.torch.Attention(32, 4, spec="sofmax")
    hidden = torch.zeros(9, 9, dtype=torch.bool)
    for options, sentence in (({"key_padding_mask": hidden[:, :2]}, r"key_padding_mask has shape \(9, 2\), not \(2, 9\)"),
                              ({"attn_mask": hidden.expand(8, 9, 9).transpose(0, 1)}, "attn_mask has shape"),
                              ({"attn_mask": hidden.expand(3, 9, 9)}, "attn_mask has shape"),
                              ({"attn_mask": hidden[:8]}, "mask has shape"), ({"attn_mask": draw(8, 8)}, "bias has shape")):
        with pytest.raises(foci.ArgumentError, match=sentence):
            attn(x, **options)
    near(attn(x[0], key_padding_mask=hidden[0])[0], attn(x[0])[0])
    with pytest.raises(foci.UnsupportedError, match="max_len"):
        foci.torch.Attention(32, 4, spec="synthesizer(kind=random)", batch_first=True)(draw(1, 100, 32))
    with pytest.raises(foci.ArgumentError, match="not causal"):
        foci.torch.DecodeState(attn)


def test_nothing():
    attn = foci.torch.Attention(32, 4, batch_first=True)
    for shape in ((0, 9, 32), (2, 0, 32)):
        x = draw(*shape, grad=True)
        attn(x)[0].sum().backward()
        assert x.grad.shape == shape and not attn.Wq.grad.any()


# States

@pytest.mark.parametrize("spec", ["softmax", "local(window=3) rope", "linear", "2*retention + 2*softmax sink", "bigbird(block=4)"])
@pytest.mark.parametrize("layout", ["bhnd", "bnhd"])
def test_state_of_a_spec(spec, layout):
    given = qkv(2, 4, 13, 8)
    want = foci.torch.attention(*given, spec, causal=True)
    state = foci.torch.DecodeState(spec, batch=2, heads=4, dim=8, layout=layout, max_len=13)
    rows = []
    for begin, end in ((0, 5), (5, 6), (6, 7), (7, 13)):
        part = [t[:, :, begin:end].clone() for t in given]
        if layout == "bnhd":
            part = [t.transpose(1, 2) for t in part]
        o = state.step(*part)
        rows.append(o if layout == "bhnd" else o.transpose(1, 2))
        del part, o  # a state has copies
        gc.collect()
    near(torch.cat(rows, 2), want, 1e-5)
    assert state.lengths == [13, 13]


@pytest.mark.parametrize("dtype, atol", [(torch.float32, 1e-5), (torch.bfloat16, 3e-2)])
def test_state_of_a_layer(dtype, atol):
    attn = foci.torch.Attention(32, 8, spec="4*softmax rope + 4*local(window=3) sink", causal=True, batch_first=True)
    x = draw(2, 13, 32, dtype=dtype)
    want = attn(x)[0]
    state = foci.torch.DecodeState(attn, batch=2, dtype=dtype)
    near(torch.cat([state.step(x[:, :6]), *(state.step(x[:, i : i + 1]) for i in range(6, 13))], 1), want, atol)
    with torch.no_grad():
        attn.Wo.mul_(2)  # what follows from the parameters is computed anew
        attn.bo.mul_(2)
    state.reset()
    near(state.step(x), 2 * want, 2 * atol)
    state.truncate(6)
    near(state.step(x[:, 6:]), 2 * want[:, 6:], 2 * atol)


def test_parameters_of_a_state():
    q, k, v = qkv(2, 4, 6, 8)
    sink = draw(4)
    want = foci.torch.attention(q, k, v, "softmax sink", causal=True, params={"sink": sink})
    for params in (sink, {"sink": sink}, {"sink": sink.numpy()}):
        state = foci.torch.DecodeState("softmax sink", batch=2, heads=4, dim=8, params=params)
        twin = state.copy()
        near(state.step(q, k, v), want)
        assert twin.lengths == [0, 0] and state.lengths == [6, 6]
    for params in (sink[:3], sink[:0]):
        with pytest.raises(foci.ArgumentError, match="params has"):
            foci.torch.DecodeState("softmax sink", heads=4, dim=8, params=params)
    with torch.inference_mode():
        attn = foci.torch.Attention(32, 4, causal=True, batch_first=True)
        x = draw(2, 6, 32)
        near(foci.torch.DecodeState(attn, batch=2).step(x), attn(x)[0])


def test_states_apart():
    q, k, v = qkv(2, 4, 6, 8)
    want = foci.torch.attention(q, k, v, causal=True)
    state = foci.torch.DecodeState("softmax", batch=2, heads=4, dim=8)
    rows = [torch.cat([t[0, :, :4], t[1, :, :6]], 1).transpose(0, 1) for t in (q, k, v)]  # 4 tokens and 6
    o = state.step(*rows, tokens=[4, 6])
    near(o[:4], want[0, :, :4].transpose(0, 1))
    near(o[4:], want[1].transpose(0, 1))
    state.reorder([0, 0])
    near(state.step(*(t[:1, :, 4:5].expand(2, 4, 1, 8) for t in (q, k, v))), want[:1, :, 4:5].expand(2, 4, 1, 8))
    with pytest.raises(foci.ArgumentError, match="q has shape"):
        state.step(q[:1], k, v)
    with pytest.raises(foci.DTypeError, match="q has dtype torch.bfloat16"):
        state.step(q.bfloat16(), k, v)
    with pytest.raises(foci.ArgumentError, match="takes q, k and v"):
        state.step(q)
