"""Layers: against the judge, finite differences, the command; states; what they refuse."""
import subprocess
import threading
import time

import numpy as np
import pytest
from conftest import draw

import foci
from foci._command import COMMAND

X = draw(2, 12, 32, seed=1)


@pytest.mark.parametrize("spec,options", [
    ("softmax", {}), ("2*softmax rope + 2*local(window=3) frozen", {"causal": True}), ("lsh(buckets=4)", {}),
    ("linear", {"kv_heads": 2}), ("softmax", {"biases": True, "head_dim": 4}), ("2*fixed(pattern=left) + 2*softmax", {}),
    ("relu2", {"kind": "gau", "heads": 1, "head_dim": 8, "value_dim": 16}), ("lightconv", {"kind": "conv"}),
])
def test_layers(spec, options):
    layer = foci.Layer(spec, width=32, **{"heads": 4, **options})
    y, vjp = layer.vjp(X)
    np.testing.assert_allclose(y, layer.reference(X), atol=2e-5)
    np.testing.assert_allclose(y, layer(X), atol=1e-6)
    dy = draw(*X.shape, seed=2)
    grads = vjp(dy)
    step, names = 1e-3, [t.name for t in layer.tensors if t.keep == "trained" and t.offset >= 0]
    if "lsh" not in spec:
        way = draw(*X.shape, seed=3)
        expected = float((grads.x * way.astype(float)).sum())
        ways = {name: draw(*layer.params[name].shape, seed=4) for name in names}
        expected += sum(float((grads.params[name] * ways[name].astype(float)).sum()) for name in names)
        sums = []
        for sign in (1, -1):
            moved = {name: layer.params[name] + np.float32(sign * step) * ways[name] for name in names}
            o = layer.reference(X + np.float32(sign * step) * way, params=moved)
            sums.append(float((o.astype(float) * dy).sum()))
        size = np.linalg.norm(grads.x) + np.linalg.norm(grads.params.flat)
        assert abs((sums[0] - sums[1]) / (2 * step) - expected) < 0.01 * size + 1e-3


def test_equal_to_the_command(tmp_path):
    np.save(tmp_path / "x.npy", X)
    subprocess.run([COMMAND, "run", "2*softmax frozen + 2*softmax", "--x", "x.npy", "--heads", "4", "--causal", "--seed", "3",
                    "--out", "y.npy", "--quiet"], cwd=tmp_path, check=True)
    layer = foci.Layer("2*softmax frozen + 2*softmax", width=32, heads=4, causal=True, seed=3)
    assert np.array_equal(layer(X), np.load(tmp_path / "y.npy"))


def test_lengths_and_shapes():
    layer = foci.Layer("softmax rope", width=32, heads=4)
    y = layer(X, lengths=[5, 12])
    assert not y[0, 5:].any()
    np.testing.assert_allclose(y[0, :5], layer(X[:1, :5])[0], atol=2e-6)
    np.testing.assert_allclose(layer(X[0]), layer(X)[0], atol=2e-6)
    out = np.empty_like(X)
    layer(X, out=out, residual=X)
    np.testing.assert_allclose(out - X, layer(X), atol=2e-6)
    cross = foci.Layer("softmax", width=32, heads=4, width_source=16)
    source = draw(2, 7, 16)
    y, vjp = cross.vjp(X, source=source, lengths_source=[7, 3])
    grads = vjp(np.ones_like(y))
    assert grads.source.shape == source.shape and not grads.source[1, 3:].any()


def test_memory_goes_on():
    layer = foci.Layer("xl", width=32, heads=4, causal=True, memory=6)
    one, two = X[:, :6].copy(), X[:, 6:].copy()
    memory = np.empty_like(one)
    layer(one, memory_next=memory)
    assert np.array_equal(memory, one)
    y = layer(two, memory=memory)
    assert np.abs(y - layer(two)).max() > 1e-3


def test_gradients_are_shaped_as_what_was_given():
    layer = foci.Layer("softmax", width=32, heads=4, width_source=32)
    bias, mask = draw(12, 12), np.ones((4, 12, 12), bool)
    grads = layer.vjp(X[0], source=X[1], bias=bias, mask=mask)[1](X[0])
    assert [g.shape for g in grads[:3]] == [(12, 32), (12, 32), (12, 12)]
    np.testing.assert_allclose(grads.bias, layer.vjp(X[0], source=X[1], bias=bias)[1](X[0]).bias, atol=1e-6)
    x = draw(12, 32, seed=4)
    q, k, v = (draw(4, 12, 8, seed=i) for i in range(3))
    grads = foci.attention_vjp(q, k, v, "routed(local(window=3), routes=1)", x=x)[1](q)
    assert grads.x.shape == x.shape


def test_what_is_written():
    layer = foci.Layer("softmax txl", width=32, heads=4, memory=3, causal=True)
    x, out, rows = X[:1], np.empty((1, 12, 32), np.float32), np.empty((12, 32), np.float32)
    want = layer(x)
    assert np.shares_memory(layer(x, out=out), out)
    assert np.shares_memory(layer(x[0], out=rows), rows)
    assert np.array_equal(out, want) and np.array_equal(rows, want[0])
    locked = np.zeros((1, 3, 32), np.float32)
    locked.flags.writeable = False
    for options, sentence in (({"out": out.reshape(1, 32, 12)}, "out has shape"), ({"out": out[:, ::-1]}, "packed"),
                              ({"out": rows}, "out has shape"), ({"out": out[0, 0]}, "out has shape"),
                              ({"out": np.empty((12, 32, 1), "f4").transpose(1, 0, 2)}, "out has shape"),
                              ({"out": np.broadcast_to(np.float32(0), out.shape)}, "read-only"),
                              ({"memory": locked, "memory_next": locked}, "memory_next .* not read-only")):
        with pytest.raises(foci.ArgumentError, match=sentence):
            layer(x, **options)
    assert not locked.any()


def test_states():
    layer = foci.Layer("2*softmax rope + 2*retention", width=32, heads=4, causal=True)
    want = layer(X)
    state = layer.state(2)
    found = np.concatenate([state.step(X[:, i:i + 4]) for i in range(0, 12, 4)], 1)
    np.testing.assert_allclose(found, want, atol=5e-6)
    fixed = layer.state(2, fixed=True)
    layer.params.flat[:] += 1
    found = np.concatenate([fixed.step(X[:, i:i + 4]) for i in range(0, 12, 4)], 1)
    np.testing.assert_allclose(found, want, atol=5e-6)
    with pytest.raises(foci.ArgumentError, match="fixed=True"):
        fixed.step(X, params=layer.params)
    layer.params.flat[:] = fixed._fixed[2].flat
    state.reset()
    rows = np.concatenate([X[0, :5], X[1, :2]])
    found = state.step(rows, tokens=[5, 2])
    np.testing.assert_allclose(found[5:], want[1, :2], atol=5e-6)


def test_ways_back_have_scratch_memory_each(monkeypatch):
    layer = foci.Layer("softmax", width=32, heads=4)
    y, vjp = layer.vjp(X)
    want, backward, places = vjp(y).x, foci._c.lib.foci_layer_backward, []

    def interrupted(handle, io, grads):
        place = io._obj.work
        if not places:  # another thread goes the same way in between
            places.append(place)
            thread = threading.Thread(target=vjp, args=(y,))
            thread.start()
            thread.join()
            assert io._obj.work == place
        else:
            places.append(place)
        return backward(handle, io, grads)

    monkeypatch.setattr(foci._c.lib, "foci_layer_backward", interrupted)
    assert np.array_equal(vjp(y).x, want) and len(set(places)) == 2


@pytest.mark.parametrize("options", [{"mask": np.ones((12, 12), bool)}, {"bias": np.zeros((12, 12), np.float32)}])
def test_a_state_after_a_mask(options):
    layer = foci.Layer("softmax rope", width=32, heads=4, causal=True)
    want = layer(X, **options)
    np.testing.assert_allclose(layer.state(2).step(X), want, atol=2e-6)


def test_threads_draw_parameters_once(monkeypatch):
    layer, seen = foci.Layer("softmax", width=32, heads=4, longest=4), []
    init = layer.init
    monkeypatch.setattr(layer, "init", lambda seed: time.sleep(0.02) or init(seed))
    threads = [threading.Thread(target=lambda: seen.append(layer.params)) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert seen[0] is seen[1] is layer.params


def test_copies_of_states():
    layer = foci.Layer("softmax rope", width=32, heads=4, causal=True, longest=12)
    state = layer.state(2, fixed=True)
    state.step(X[:, :6])
    twin = state.copy()
    assert np.array_equal(twin.step(X[:, 6:]), state.step(X[:, 6:])) and twin.lengths == [12, 12]


def test_numbers_that_fit():
    for options in ({"width": 2**64 + 8}, {"heads": -1}, {"longest": 2**64 + 4}, {"heads": np.int64(-1)}):
        with pytest.raises(foci.ArgumentError, match="it has to be 0 or more, and fit into 64 bits"):
            foci.Layer("softmax", **{"width": 8, "heads": 2, "longest": 4, **options})
    assert foci.Layer("softmax", width=np.int64(8), heads=2, seed=2**64 - 1, longest=4).params["Wq"].any()


def test_frozen_and_parameters():
    layer = foci.Layer("softmax frozen", width=32, heads=4, longest=12)
    assert set(layer.params) == {"Wv", "Wo"} and set(layer.frozen) == {"Wq", "Wk"}
    w = layer.frozen["Wq"][:, :8]
    np.testing.assert_allclose(w.T @ w, np.eye(8), atol=1e-5)
    before = layer(X)
    layer.set_frozen("Wq", np.zeros((32, 32), np.float32))
    assert not layer.frozen["Wq"].any()
    flat = layer(X)
    assert np.abs(before - flat).max() > 1e-3
    mean = (X @ layer.params["Wv"]).mean(1, keepdims=True) @ layer.params["Wo"]
    np.testing.assert_allclose(flat, np.broadcast_to(mean, X.shape), atol=1e-5)
    with pytest.raises(foci.ArgumentError, match="Wv is not a frozen projection; there are Wq, Wk"):
        layer.set_frozen("Wv", w)
    np.testing.assert_allclose(layer.weights(X).sum(-1), 1, atol=1e-5)


def test_lengths_that_arguments_follow():
    layer = foci.Layer("strided", width=32, heads=4, causal=True, longest=16)
    assert "stride=4" in layer.spec
    assert layer(X).shape == X.shape and "stride=4" in layer.spec
    layer = foci.Layer("synthesizer(kind=random)", width=32, heads=4, causal=True, longest=16)
    assert layer(X).shape == X.shape and layer.params["R"].shape == (4, 16, 16)


@pytest.mark.parametrize("call,sentence", [
    (lambda: foci.Layer("softmax", width=32, heads=3)(X), "width 32 is not divisible by 3 heads"),
    (lambda: foci.Layer("softmax", width=32).params, "say longest="),
    (lambda: foci.Layer("softmax", width=16)(X), r"x has shape .* not \(batch, rows, 16\)"),
    (lambda: foci.Layer("softmax", width=32)(X.astype(float)), "float64"),
    (lambda: foci.Layer("softmax", width=32)(X.astype("f2")), "float16"),
    (lambda: foci.Layer("softmax", width=32)(X, source=X), "source is given"),
    (lambda: foci.Layer("softmax", width=32, width_source=4)(X), "source is missing"),
    (lambda: foci.Layer("softmax", width=32)(X, speed=9), "takes no speed="),
    (lambda: foci.Layer("softmax", width=32, kind="rnn"), 'kind "rnn"'),
    (lambda: foci.Layer("softmax", width=-1), "width=-1"),
    (lambda: foci.Layer("softmax", width=32)(X[:, :0]), "."),
    (lambda: foci.Layer("softmax", width=32).vjp(X)[1](X[:1]), "dy has shape"),
    (lambda: foci.Layer("softmax", width=32)(X, params={"Wx": 1}), 'no parameter "Wx"; there are Wq, Wk, Wv, Wo'),
    (lambda: foci.Layer("softmax", width=32)(X, memory=X[..., :3]), r"memory has shape .2, 12, 3."),
    (lambda: foci.Layer("softmax", width=32, causal=True, longest=4).state(2).step(X[:1]), "x has 1 sequences, the state 2"),
])
def test_refused(call, sentence):
    with pytest.raises(foci.Error, match=sentence):
        call()
