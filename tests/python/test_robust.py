"""What a program may do wrong, or do at once: the right result or a clear exception."""
import gc
import multiprocessing
import os
import threading
import tracemalloc
import weakref

import numpy as np
import pytest
from conftest import draw, softmax

import foci
from foci._tensors import array

Q, K, V = (draw(2, 4, 33, 16, seed=i) for i in range(3))
LONG = os.environ.get("FOCI_TEST_LONG")


def same(found, want):
    assert found.shape == want.shape
    np.testing.assert_allclose(found, want, atol=3e-6, rtol=0)


def test_views():
    want = softmax(Q, K, V)
    backwards = Q[..., ::-1]
    same(foci.attention(backwards, np.ascontiguousarray(K[..., ::-1]), V), want)  # elements not adjacent
    same(foci.attention(Q[:, :, ::-1], K, V), want[:, :, ::-1])
    same(foci.attention(Q[:, :, ::2], K, V), want[:, :, ::2])
    same(foci.attention(Q[::2], K[::2], V[::2]), want[::2])
    wide = np.zeros((2, 33, 3, 4, 16), np.float32)  # one buffer of q, k and v
    for i, a in enumerate((Q, K, V)):
        wide[:, :, i] = a.transpose(0, 2, 1, 3)
    same(foci.attention(wide[:, :, 0], wide[:, :, 1], wide[:, :, 2], layout="bnhd"), want.transpose(0, 2, 1, 3))
    shared = np.broadcast_to(K[:1], K.shape)  # a stride of 0
    same(foci.attention(Q, shared, V), softmax(Q, shared, V))
    same(foci.attention(np.broadcast_to(Q[:, :, :1], Q.shape), K, V), np.broadcast_to(want[:, :, :1], Q.shape))
    bytes_ = np.zeros(Q.nbytes + 1, np.uint8)  # not aligned
    odd = bytes_[1:].view(np.float32).reshape(Q.shape)
    odd[...] = Q
    assert not odd.flags.aligned
    same(foci.attention(odd, K, V), want)
    windows = np.lib.stride_tricks.sliding_window_view(np.arange(48, dtype=np.float32) / 48, 16)
    same(foci.attention(windows, K[0, 0], V[0, 0]), softmax(windows[None, None], K[:1, :1], V[:1, :1])[0, 0])
    locked = Q.copy()
    locked.flags.writeable = False
    same(foci.attention(locked, K, V), want)


def test_gradients_of_views():
    vjp = foci.attention_vjp(Q, K, V)[1]
    turned = [np.ascontiguousarray(a.transpose(0, 2, 1, 3)).transpose(0, 2, 1, 3) for a in (Q, K, V)]
    other = foci.attention_vjp(*turned)[1]
    d_o = draw(2, 4, 33, 16, seed=9)
    strange = np.ascontiguousarray(d_o[..., ::-1])[..., ::-1]
    for a, b in zip(vjp(d_o)[:3], other(strange)[:3]):
        np.testing.assert_array_equal(a, b)


def test_gradients_of_rows_that_are_shared():
    k = np.broadcast_to(K[:1], K.shape)
    d_o = draw(2, 4, 33, 16, seed=9)
    for a, b in zip(foci.attention_vjp(Q, k, k)[1](d_o)[:3], foci.attention_vjp(Q, k.copy(), k.copy())[1](d_o)[:3]):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("shapes", [((0, 4, 3, 8),) * 3, ((2, 4, 0, 8), (2, 4, 3, 8), (2, 4, 3, 8)),
                                    ((2, 4, 3, 8), (2, 4, 0, 8), (2, 4, 0, 8)), ((2, 0, 3, 8),) * 3,
                                    ((2, 4, 3, 8), (2, 4, 3, 8), (2, 4, 3, 0))])
def test_nothing(shapes):
    q, k, v = (np.ones(shape, np.float32) for shape in shapes)
    out, vjp = foci.attention_vjp(q, k, v)
    assert out.shape == (*q.shape[:3], v.shape[3]) and not out.any()
    grads = vjp(out)
    assert [g.shape for g in grads[:3]] == list(shapes) and not any(g.any() for g in grads[:3])


class Elsewhere:
    """An array on a device that is not here."""

    def __dlpack_device__(self):
        return 2, 1

    def __dlpack__(self, **_):
        raise AssertionError("nobody may ask for memory of a device")


class Refusing(Elsewhere):
    """An array that cannot be shared, as those of PyTorch that need a gradient."""

    def __dlpack_device__(self):
        return 1, 0

    def __dlpack__(self, **_):
        raise BufferError("Can't export tensors that require gradient")


@pytest.mark.parametrize("q,error,sentence", [
    (Q.astype(np.float64), foci.DTypeError, "q has dtype float64: foci computes in float32, bfloat16 and float16"),
    (Q.astype(">f4"), foci.DTypeError, "q has the other byte order"),
    (Q.view(np.uint16), foci.DTypeError, "whether these are bfloat16 cannot be seen"),
    (Q.astype(np.int32), foci.DTypeError, "q has dtype int32"),
    (Q.astype(np.complex64), foci.DTypeError, "q has dtype complex64"),
    (np.array([None]), foci.DTypeError, "q has dtype object"),
    (Q.tolist(), foci.DTypeError, "q is a list"),
    (Elsewhere(), foci.DTypeError, "q is on device cuda:1"),
    (Refusing(), foci.ArgumentError, "q cannot be shared by DLPack: Can't export tensors that require gradient"),
    (Q[0], foci.ArgumentError, 'k has shape|layout "hnd" names 3 axes; the array has 4'),
    (Q[..., :8], foci.ArgumentError, "elements in a row differ: q 8, k 16"),
    (Q[:, :3], foci.ArgumentError, "must divide the 3 heads"),
    (Q[:1], foci.ArgumentError, "batch differ: q 1, k 2, v 2"),
    (np.array(1, np.float32), foci.ArgumentError, "q has shape ..: arrays have 2"),
    (Q.ravel(), foci.ArgumentError, "q has shape .4224,."),
    (Q[..., :0], foci.ArgumentError, "elements in a row differ"),
])
def test_wrong_arrays(q, error, sentence):
    with pytest.raises(error, match=sentence):
        foci.attention(q, K, V)


@pytest.mark.parametrize("options,error,sentence", [
    ({"spec": "sofmax"}, foci.SpecError, 'column 1: unknown mechanism "sofmax"; the nearest is "softmax"'),
    ({"spec": "softmax\0"}, foci.SpecError, "column 8: a zero byte"),
    ({"spec": "soft\ud800max"}, foci.SpecError, "column 5: half a character"),
    ({"spec": "söftmax"}, foci.SpecError, "column 1|column 2"),
    ({"spec": 3}, foci.DTypeError, "spec is a int"),
    ({"layout": "bhdn"}, foci.ArgumentError, 'layout "bhdn": a layout is an order of'),
    ({"layout": "bnd"}, foci.ArgumentError, 'layout "bnd" names 3 axes'),
    ({"mask": np.ones((33, 32), bool)}, foci.ArgumentError, "mask has shape"),
    ({"mask": np.ones((33, 33))}, foci.DTypeError, "a mask is bool"),
    ({"bias": np.ones((3, 33, 33), np.float32)}, foci.Error, "."),
    ({"bias": np.ones((3, 32), np.float32), "mask": np.ones((33, 33), bool)}, foci.ArgumentError, "have to agree"),
    ({"spec": ["softmax"]}, foci.DTypeError, "spec is a list"),
    ({"lengths": [33]}, foci.ArgumentError, r"lengths .* has shape \(1,\), not \(2,\)"),
    ({"lengths": [33, 34]}, foci.ArgumentError, "."),
    ({"lengths": [[1], [1, 2]]}, foci.ArgumentError, "lengths .*: the lists in it differ in length"),
    ({"words": [[1], [1, 2]]}, foci.ArgumentError, "words: the lists in it differ in length"),
    ({"lists": {"layout": [[1], [1, 2]]}}, foci.ArgumentError, "the list layout: the lists in it differ in length"),
    ({"lengths": [1.5, 2]}, foci.DTypeError, "whole numbers"),
    ({"seed": -1}, foci.ArgumentError, "seed=-1"),
    ({"dropout": 1.0}, foci.ArgumentError, "dropout"),
    ({"dropout": float("nan")}, foci.ArgumentError, "dropout"),
    ({"docs": [0, 33]}, foci.ArgumentError, "."),
    ({"spec": "softmax sink", "params": [0, 0, 0, 0]}, foci.DTypeError, "params is a list: it has to be a mapping"),
    ({"params": {"sink": 1}}, foci.ArgumentError, 'there is no parameter "sink"'),
    ({"x": Q}, foci.Error, "."),
    ({"out": np.zeros((2, 4, 33, 15), np.float32)}, foci.ArgumentError, "out has shape"),
    ({"out": np.zeros((), np.float32)}, foci.ArgumentError, r"out has shape \(\), not"),
    ({"out": np.zeros((2, 4, 33, 16))}, foci.DTypeError, "out has dtype float64"),
    ({"out": np.zeros((2, 4, 33, 32), np.float32)[..., ::2]}, foci.ArgumentError, "adjacent"),
    ({"out": np.zeros((2, 4, 33, 16), np.float32)[:, :, ::-1]}, foci.ArgumentError, "stride"),
    ({"out": np.broadcast_to(np.float32(0), (2, 4, 33, 16))}, foci.ArgumentError, "read-only"),
    ({"out": Q}, foci.ArgumentError, "overlap"),
    ({"lse": [0.0]}, foci.ArgumentError, "lse has to be a packed NumPy array"),
    ({"lse": np.zeros(3, np.float32)}, foci.ArgumentError, "lse has to be"),
    ({"lists": {"layout": [1]}}, foci.Error, "."),
    ({"spec": "block", "lists": {"layout": [0.5]}}, foci.DTypeError, "the list layout has dtype float64"),
    ({"spec": "block"}, foci.ArgumentError, 'block needs its layout'),
    ({"words": [1]}, foci.ArgumentError, "words has shape"),
])
def test_wrong_options(options, error, sentence):
    with pytest.raises(error, match=sentence):
        foci.attention(Q, K, V, **options)


def test_unknown_options_of_plans():
    plan = foci.Plan(batch=2, heads=4, len_q=33, dim=16)
    with pytest.raises(foci.ArgumentError, match="there is no masks=; there are x, params, mask"):
        plan.forward(Q, K, V, masks=1)
    with pytest.raises(foci.ArgumentError, match="mask=given: the plan was made without mask=True"):
        plan.forward(Q, K, V, mask=np.ones((33, 33), bool))
    with pytest.raises(foci.ArgumentError, match="without train=True"):
        plan.saved()
    trains, twin = (foci.Plan("lsh", batch=2, heads=4, len_q=33, dim=16, train=True) for _ in range(2))
    saved = trains.saved()
    out = trains.forward(Q, K, V)
    with pytest.raises(foci.ArgumentError, match="saved is empty"):
        trains.backward(out, Q, K, V, out=out, saved=saved)
    with pytest.raises(foci.ArgumentError, match="saved is that of another plan"):
        twin.forward(Q, K, V, saved=saved)
    trains.forward(Q, K, V, saved=saved)
    assert saved.filled and saved.nbytes and trains.backward(out, Q, K, V, out=out, saved=saved).q.any()


def test_exceptions_are_pythons_too():
    for made, base in ((foci.SpecError, ValueError), (foci.ArgumentError, ValueError), (foci.DTypeError, TypeError),
                       (foci.UnsupportedError, NotImplementedError), (foci.FileError, OSError),
                       (foci.OutOfMemoryError, MemoryError), (foci.PoolFullError, RuntimeError)):
        assert issubclass(made, base) and issubclass(made, foci.Error) and made.__module__ == "foci"
    with pytest.raises(NotImplementedError, match="nystrom cannot be causal"):
        foci.attention(Q, K, V, "nystrom", causal=True)


def test_arrays_of_others():
    """Through DLPack, without a copy, and alive as long as they are looked at."""

    class Shared:
        def __init__(self, values):
            self.values = values

        def __dlpack_device__(self):
            return self.values.__dlpack_device__()

        def __dlpack__(self, **options):
            return self.values.__dlpack__(**options)

    values = Q.copy()
    view = array(Shared(values), "q")
    assert np.shares_memory(view, values)
    turned = Shared(values.transpose(0, 2, 1, 3))
    same(foci.attention(turned, Shared(K.transpose(0, 2, 1, 3)), Shared(V.transpose(0, 2, 1, 3)), layout="bnhd"),
         softmax(Q, K, V).transpose(0, 2, 1, 3))
    del values
    assert np.array_equal(view, Q)
    out = Shared(np.zeros_like(Q))
    foci.attention(Q, K, V, out=out)
    same(out.values, softmax(Q, K, V))


def test_a_state_outlives_what_it_was_given():
    state = foci.State("softmax sink", heads=4, dim=16, batch=2, params={"sink": np.zeros(4, np.float32)})
    rows = []
    for i in range(33):
        q, k, v = (a[:, :, i:i + 1].copy() for a in (Q, K, V))
        rows.append(state.step(q, k, v))
        q[...] = k[...] = v[...] = np.nan
        del q, k, v
    gc.collect()
    same(np.concatenate(rows, 2), foci.attention(Q, K, V, "softmax sink", causal=True))
    pool, sequences = state._pool, state._sequences
    del state
    gc.collect()
    assert pool.handle and len(sequences) == 2


def test_a_state_is_freed_at_once():
    state = foci.State("softmax", heads=4, dim=16, batch=2)
    state.step(Q[:, :, :1], K[:, :, :1], V[:, :, :1])
    free = foci._c.lib.foci_pool_free_count
    gone = weakref.ref(state._pool)
    gc.disable()
    try:
        held = free(state._pool.handle)
        state.reorder([0])
        assert free(state._pool.handle) > held  # the pages of the other one
        del state
        assert gone() is None
    finally:
        gc.enable()


def test_cycles_are_freed_in_order():
    for _ in range(3):
        context = foci.Context(threads=1)
        ring = [foci.State("softmax", heads=4, dim=16, context=context), context, foci.Plan(len_q=3, dim=4, context=context)]
        ring.append(ring)
        del context, ring
        gc.collect()


def test_eight_threads():
    want = foci.attention(Q, K, V, "softmax sink", causal=True)
    wrong = []

    def work(number):
        for i in range(20):
            spec = "softmax sink" if (i + number) % 2 else f"softmax cap({number + 2})"
            found = foci.attention(Q, K, V, spec, causal=True)
            if spec == "softmax sink" and not np.array_equal(found, want):
                wrong.append("another result")
            try:
                foci.attention(Q, K, V, f"nothing{number}")
                wrong.append("no error")
            except foci.SpecError as error:
                if f"nothing{number}" not in str(error):
                    wrong.append(f"{error}: the message of another thread")

    threads = [threading.Thread(target=work, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_threads_share_a_state():
    state = foci.State("softmax", heads=4, dim=16)
    row = Q[:1, :, :1]

    def work():
        for _ in range(50):
            state.step(row, row, row)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert state.lengths == [200]


def _in_a_child(connection):
    connection.send((foci.attention(Q, K, V, causal=True), foci.attention(Q, K, V, "local(window=3)")))


def test_after_fork():
    want = foci.attention(Q, K, V, causal=True)
    state = foci.State("softmax", heads=4, dim=16, batch=2)
    state.step(Q, K, V)
    fork = multiprocessing.get_context("fork")
    here, there = fork.Pipe()
    for _ in range(2):
        child = fork.Process(target=_in_a_child, args=(there,))
        child.start()
        assert here.poll(60), "the child hangs"
        assert np.array_equal(here.recv()[0], want)
        child.join()
        assert child.exitcode == 0
    assert np.array_equal(foci.attention(Q, K, V, causal=True), want)


def test_what_cannot_be_sent():
    with pytest.raises(TypeError, match="Plan cannot be pickled"):
        __import__("pickle").dumps(foci.Plan(len_q=3, dim=4))


def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def test_no_leaks():
    """10^5 rounds of calls with FOCI_TEST_LONG, else some hundreds."""
    q, k, v = (draw(1, 2, 3, 4, seed=i) for i in range(3))
    foci.set_threads(1)
    plan = foci.Plan("softmax sink", heads=2, len_q=3, dim=4, train=True)
    layer = foci.Layer("softmax", width=8, heads=2, causal=True)
    x = draw(1, 3, 8)
    state = foci.State(foci.Plan("softmax", heads=2, len_q=3, dim=4, causal=True))

    def calls(count):
        for i in range(count):
            foci.attention(q, k, v)
            out, vjp = foci.attention_vjp(q, k, v, "softmax sink")
            vjp(out)
            try:
                foci.attention(q, k, v, "sofmax")
            except foci.SpecError:
                pass
            layer(x)
            state.step(q, k, v)
            state.reorder([0, 0])
            state.reorder([1])
            state.reset()
            if i % 10 == 0:
                foci.Plan("softmax", heads=2, len_q=3, dim=4)
                foci.clear_cache()

    try:
        calls(100)
        gc.collect()
        tracemalloc.start()
        calls(100)
        gc.collect()
        before, _ = tracemalloc.get_traced_memory()
        calls(200)
        gc.collect()
        after, _ = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        held = resident()
        calls(100000 if LONG else 800)
        grown = resident() - held
    finally:
        foci.set_threads(0)
    assert after - before < 20000
    assert grown < (4 << 20)
    assert plan.handle
