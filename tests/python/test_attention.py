"""attention() and its gradients: against NumPy, the judge, finite differences, the command."""
import subprocess

import numpy as np
import pytest
from conftest import Case, cases, draw, softmax

import foci
from foci._command import COMMAND


def qkv(batch=2, heads=4, rows=33, dim=16, kv_heads=0, keys=0, dtype=np.float32):
    kv_heads, keys = kv_heads or heads, keys or rows
    return (draw(batch, heads, rows, dim, seed=1, dtype=dtype), draw(batch, kv_heads, keys, dim, seed=2, dtype=dtype),
            draw(batch, kv_heads, keys, dim, seed=3, dtype=dtype))


def close(found, want, atol=2e-6):
    assert found.shape == want.shape
    np.testing.assert_allclose(found.astype(np.float64), want, atol=atol, rtol=0)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("kv_heads", [4, 2, 1])
def test_softmax_is_numpys(causal, kv_heads):
    q, k, v = qkv(kv_heads=kv_heads, keys=40)
    close(foci.attention(q, k, v, causal=causal), softmax(q, k, v, causal))


@pytest.mark.parametrize("layout", ["bhnd", "bnhd", "nbhd", "hbnd", "hnbd"])
def test_layouts(layout):
    q, k, v = qkv()
    order = ["bhnd".index(axis) for axis in layout]
    back = [layout.index(axis) for axis in "bhnd"]
    for packed in (False, True):
        a = [x.transpose(order) for x in (q, k, v)]
        if packed:
            a = [np.ascontiguousarray(x) for x in a]
        close(foci.attention(*a, layout=layout).transpose(back), softmax(q, k, v))


def test_fewer_axes():
    q, k, v = qkv(batch=1)
    close(foci.attention(q[0], k[0], v[0]), softmax(q, k, v)[0])
    close(foci.attention(q[0, :1].transpose(1, 0, 2), k[0, :1].transpose(1, 0, 2), v[0, :1].transpose(1, 0, 2),
                         layout="nhd"), softmax(q[:, :1], k[:, :1], v[:, :1])[0].transpose(1, 0, 2))
    close(foci.attention(q[0, 0], k[0, 0], v[0, 0]), softmax(q[:, :1], k[:, :1], v[:, :1])[0, 0])


def test_mask_bias_lengths():
    q, k, v = qkv()
    mask = np.random.default_rng(5).random((33, 33)) < 0.7
    bias = draw(1, 4, 33, 33, seed=6)
    close(foci.attention(q, k, v, mask=mask), softmax(q, k, v, mask=mask))
    close(foci.attention(q, k, v, bias=bias), softmax(q, k, v, bias=bias))
    close(foci.attention(q, k, v, mask=mask, bias=bias), softmax(q, k, v, mask=mask, bias=bias))
    lengths = [20, 33]
    found, want = foci.attention(q, k, v, lengths=lengths), softmax(q, k, v, lengths=lengths)
    want[0, :, 20:] = 0
    close(found, want)
    close(foci.attention(q, k, v, lengths=(None, np.array(lengths))), softmax(q, k, v, lengths=lengths))


def test_documents():
    q, k, v = qkv(batch=1)
    want = np.concatenate([softmax(*(a[:, :, s] for a in (q, k, v)), causal=True)
                           for s in (slice(0, 10), slice(10, 33))], 2)
    close(foci.attention(q, k, v, causal=True, docs=[0, 10, 33]), want)


def test_lse_and_out():
    q, k, v = qkv()
    lse, out = np.empty((2, 4, 33), np.float32), np.zeros((2, 33, 4, 16), np.float32)
    view = out.transpose(0, 2, 1, 3)
    assert foci.attention(q, k, v, lse=lse, out=view) is view
    close(view, softmax(q, k, v))
    logits = q.astype(float) @ k.astype(float).swapaxes(-1, -2) / 4
    np.testing.assert_allclose(lse, np.log(np.exp(logits).sum(-1)), rtol=1e-5)


@pytest.mark.parametrize("name,error", [("float16", 2e-2), ("bfloat16", 5e-2)])
def test_half_precision(name, error):
    if name == "bfloat16":
        dtype = pytest.importorskip("ml_dtypes").bfloat16
    else:
        dtype = np.float16
    a = qkv(dtype=dtype)
    found, vjp = foci.attention_vjp(*a, causal=True)
    assert found.dtype == dtype
    close(found, softmax(*a, causal=True), error)
    grads = vjp(np.ones_like(found))
    exact = foci.attention_vjp(*(x.astype(np.float32) for x in a), causal=True)[1](np.ones(found.shape, np.float32))
    assert grads.q.dtype == dtype
    for have, want in zip(grads[:3], exact[:3]):
        assert np.abs(have.astype(np.float32) - want).max() < 0.1


def test_dropout_follows_its_seed():
    q, k, v = qkv()
    a = foci.attention(q, k, v, dropout=0.5, dropout_seed=1)
    assert np.array_equal(a, foci.attention(q, k, v, dropout=0.5, dropout_seed=1))
    assert not np.array_equal(a, foci.attention(q, k, v, dropout=0.5, dropout_seed=2))


def test_parameters_by_name():
    q, k, v = qkv()
    plan = foci.Plan("softmax sink", batch=2, heads=4, len_q=33, dim=16)
    params = plan.params()
    assert dict(params).keys() == {"sink"} and params["sink"].shape == (4,)
    params["sink"] = [0, 1, 2, 3]
    want = plan.reference(q, k, v, params=params)
    close(foci.attention(q, k, v, "softmax sink", params=params), want)
    close(foci.attention(q, k, v, "softmax sink", params={"sink": np.arange(4.0)}), want)
    assert abs(foci.attention(q, k, v, "softmax sink") - want).max() > 0.01
    with pytest.raises(foci.ArgumentError, match='no parameter "sunk"; there are sink'):
        foci.attention(q, k, v, "softmax sink", params={"sunk": 1})
    with pytest.raises(foci.ArgumentError, match=r"sink has shape \(3,\), not \(4,\)"):
        foci.attention(q, k, v, "softmax sink", params={"sink": np.ones(3)})


def test_moved_parameters():
    case = Case("routing", False)
    plan = foci.Plan(case.spec, heads=2, len_q=24, dim=8)
    params = plan.params(3)
    before = params["mu"].copy()
    plan.advance(case.q, case.k, params)
    assert 0 < np.abs(params["mu"] - before).max() < 1
    plan = foci.Plan("performer(kind=aderf, features=8)", heads=2, len_q=24, dim=8, causal=True)
    params = plan.params(3)
    assert np.isnan(params.flat).any()
    plan.calibrate(case.q, case.k, params)
    assert not np.isnan(params.flat).any()
    close(plan.forward(*case.arrays, params=params), plan.reference(*case.arrays, params=params), 1e-5)


@pytest.mark.parametrize("name,causal", cases())
def test_every_mechanism_is_the_judges(name, causal):
    case = Case(name, causal)
    out = foci.attention(*case.arrays, case.spec, seed=3, **case.options)
    assert np.isfinite(out).all() and np.abs(out).max() > 0
    options = {key: value for key, value in case.options.items() if key == "x"}
    plan = plan_of(case, False)
    close(out, plan.reference(*case.arrays, params=plan.params(3), **options), 2e-5)


@pytest.mark.parametrize("shape", [(33, 33), (4, 33, 33), (1, 1, 33, 33), (2, 4, 33, 33)])
@pytest.mark.parametrize("masked", [(), (33, 33), (4, 33, 33), (2, 1, 33, 33)])
def test_gradient_of_a_bias(shape, masked):
    """That of NumPy, shaped as the bias is, also where a mask has more heads."""
    q, k, v = qkv()
    bias, mask = draw(*shape, seed=5), draw(*masked, seed=6) > -1 if masked else None
    d_o = draw(2, 4, 33, 16, seed=7)
    logits = (q @ k.swapaxes(2, 3)).astype(float) / 4 + bias
    logits[~np.broadcast_to(True if mask is None else mask, logits.shape)] = -np.inf
    a = np.exp(logits - logits.max(-1, keepdims=True))
    a /= a.sum(-1, keepdims=True)
    d_a = (d_o @ v.swapaxes(2, 3)).astype(float)
    want = a * (d_a - (a * d_a).sum(-1, keepdims=True))
    whole = (1,) * (4 - len(shape)) + shape
    want = want.sum(tuple(i for i in range(4) if whole[i] == 1), keepdims=True).reshape(shape)
    options = {} if mask is None else {"mask": mask}
    found = foci.attention_vjp(q, k, v, bias=bias, **options)[1](d_o).bias
    assert found.shape == shape
    np.testing.assert_allclose(found, want, atol=1e-5)


def plan_of(case, train):
    x = case.options.get("x")
    return foci.Plan(case.spec, heads=2, kv_heads=case.v.shape[1], len_q=24, dim=8, causal=case.causal, train=train,
                     dim_x=0 if x is None else x.shape[-1], lists=case.options.get("lists"), seed=3)


@pytest.mark.parametrize("name,causal", cases(backward=True))
def test_gradients(name, causal):
    """Against those of the judge, and these against finite differences of its outputs."""
    case = Case(name, causal)
    plan = plan_of(case, True)
    x = {"x": case.options["x"]} if "x" in case.options else {}
    params = plan.params(3)
    d_o = draw(1, 2, 24, 8, seed=7)
    out, vjp = foci.attention_vjp(*case.arrays, case.spec, seed=3, **case.options)
    grads = vjp(d_o)
    judged = plan.reference_vjp(d_o, *case.arrays, params=params, **x)
    for field in ("q", "k", "v", "x"):
        have, want = getattr(grads, field), getattr(judged, field)
        assert (have is None) == (want is None)
        if have is not None:
            assert np.abs(have - want).max() < 3e-5 * max(1, np.abs(want).max()), field
    if len(params):
        assert np.abs(grads.params.flat - judged.params.flat).max() < 1e-4 * max(1, np.abs(judged.params.flat).max())

    # along one direction of all that takes part
    step = 2e-4 if name == "routing" else 3e-3  # a larger one takes tokens to other centroids
    given = [a for a in case.arrays if a is not None] + list(x.values()) + [params.flat]
    found = [a for a in grads[:4] if a is not None] + [grads.params.flat]
    trained = np.concatenate([np.full(t.floats, t.keep == "trained") for t in params.tensors] + [[]])
    ways = [draw(*a.shape, seed=20 + i) for i, a in enumerate(given)]
    ways[-1] = ways[-1] * trained.astype(np.float32)
    expected = sum(float((w.astype(float) * g).sum()) for w, g in zip(ways, found))
    sums = []
    for sign in (1, -1):
        moved = iter(a + np.float32(sign * step) * w for a, w in zip(given, ways))
        arrays = [None if a is None else next(moved) for a in case.arrays]
        more = {"x": next(moved)} if x else {}
        o = plan.reference(*arrays, params=foci.Params(params.tensors, next(moved)), **more)
        sums.append(float((o.astype(float) * d_o).sum()))
    size = sum(float(np.linalg.norm(g)) for g in found)
    assert abs((sums[0] - sums[1]) / (2 * step) - expected) < 0.02 * size + 1e-3


@pytest.mark.parametrize("spec", ["softmax", "local(window=5) rope", "softmax sink", "linear", "4*softmax"])
def test_equal_to_the_command(tmp_path, spec):
    q, k, v = (a[0] for a in qkv(batch=1))
    d_o = draw(4, 33, 16, seed=9)
    for name, array in (("q", q), ("k", k), ("v", v), ("d", d_o)):
        np.save(tmp_path / f"{name}.npy", array)
    subprocess.run([COMMAND, "run", spec, "--q", "q.npy", "--k", "k.npy", "--v", "v.npy", "--causal", "--seed", "5",
                    "--out", "o.npy", "--dout", "d.npy", "--grads", "g", "--quiet"], cwd=tmp_path, check=True)
    out, vjp = foci.attention_vjp(q, k, v, spec, causal=True, seed=5)
    grads = vjp(d_o)
    assert np.array_equal(out, np.load(tmp_path / "o.npy"))
    for field in "qkv":
        assert np.array_equal(getattr(grads, field), np.load(tmp_path / f"g.d{field}.npy"))
    for name, values in grads.params.items():
        assert np.array_equal(values, np.load(tmp_path / f"g.d{name}.npy"))


def test_a_plan_is_used_again():
    q, k, v = qkv()
    foci.clear_cache()
    plans = foci._attention._plans
    for _ in range(3):
        foci.attention(q, k, v)
        foci.attention(q * 2, k, v)
    assert len(plans) == 1
    for rows in range(1, 100):
        foci.attention(q, k, v, f"softmax cap({rows})")
    assert len(plans) == 64


def test_plans():
    q, k, v = qkv()
    plan = foci.Plan("local(window=4)", batch=2, heads=4, len_q=33, dim=16, causal=True, train=True)
    assert plan.problem_text == "b2h4k4n33d16c" and plan.spec == "4*local(window=4, dilation=1)"
    assert plan.cost()["forward_flops"] > 0 and "exact" in plan.describe()
    saved = plan.saved()
    out = plan.forward(q, k, v, saved=saved)
    assert np.array_equal(out, foci.attention(q, k, v, "local(window=4)", causal=True))
    grads = plan.backward(np.ones_like(out), q, k, v, out=out, saved=saved)
    other = foci.attention_vjp(q, k, v, "local(window=4)", causal=True)[1](np.ones_like(out))
    assert all(np.array_equal(a, b) for a, b in zip(grads[:3], other[:3]))
    # other strides of the same shape are copied
    turned = np.ascontiguousarray(q.transpose(0, 2, 1, 3)).transpose(0, 2, 1, 3)
    assert np.array_equal(plan.forward(turned, k, v), out)
    weights = plan.weights(q, k)
    close(weights @ v, out.astype(float), 1e-5)


def test_threads_and_contexts():
    q, k, v = qkv()
    one = foci.attention(q, k, v, context=foci.Context(threads=1))
    assert np.array_equal(one, foci.attention(q, k, v, context=foci.Context(threads=3)))
    before = foci.get_threads()
    foci.set_threads(1)
    try:
        assert foci.get_threads() == 1 and np.array_equal(one, foci.attention(q, k, v))
    finally:
        foci.set_threads(0)
    assert foci.get_threads() == before
    portable = foci.Context(cpu=next(iter(foci.default_context().cpu_levels())))
    close(foci.attention(q, k, v, context=portable), softmax(q, k, v))
