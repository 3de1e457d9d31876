"""Decoding: rows come out as those of the whole sequence."""
import numpy as np
import pytest
from conftest import Case, cases, draw

import foci

STEPS = [p for p in cases() if p.values[1] and foci.mechanisms()[p.values[0]]["step"] is True]


@pytest.mark.parametrize("name,causal", STEPS)
def test_every_mechanism(name, causal):
    case = Case(name, causal)
    options = {key: value for key, value in case.options.items() if key in ("lists",)}
    x = case.options.get("x")
    want = foci.attention(*case.arrays, case.spec, seed=3, **case.options)
    state = foci.State(case.spec, heads=2, kv_heads=case.v.shape[1], dim=8, len_q=24, seed=3,
                       dim_x=0 if x is None else x.shape[-1], **options)
    found, at = [], 0
    for n in (1, 5, 1, 9, 8):
        piece = [None if a is None else a[:, :, at:at + n] for a in case.arrays]
        found.append(state.step(*piece, x=None if x is None else x[:, at:at + n]))
        at += n
    np.testing.assert_allclose(np.concatenate(found, 2), want, atol=2e-5, rtol=0)
    assert state.lengths == [24] and state.nbytes > 0


def arrays(batch=2):
    return draw(batch, 4, 30, 8, seed=1), draw(batch, 2, 30, 8, seed=2), draw(batch, 2, 30, 8, seed=3)


def test_batches_and_layouts():
    q, k, v = arrays()
    want = foci.attention(q, k, v, "softmax rope", causal=True)
    state = foci.State("softmax rope", heads=4, kv_heads=2, dim=8, batch=2, layout="bnhd")
    turned = [a.transpose(0, 2, 1, 3) for a in (q, k, v)]
    found = np.concatenate([state.step(*(a[:, i:i + 5] for a in turned)) for i in range(0, 30, 5)], 1)
    np.testing.assert_allclose(found.transpose(0, 2, 1, 3), want, atol=3e-6)


def test_unequal_steps():
    q, k, v = arrays()
    want = foci.attention(q, k, v, causal=True)
    state = foci.State("softmax", heads=4, kv_heads=2, dim=8, batch=2)
    rows = [np.concatenate([a[0, :, :7], a[1, :, :3]], 1).transpose(1, 0, 2) for a in (q, k, v)]
    found = state.step(*rows, tokens=[7, 3])
    assert state.lengths == [7, 3]
    np.testing.assert_allclose(found[7:].transpose(1, 0, 2), want[1, :, :3], atol=3e-6)
    state.step(*(a[:1, :, 7:8].reshape(1, -1, 8) for a in (q, k, v)), tokens=[1, 0])
    assert state.lengths == [8, 3]


def test_appending_only():
    q, k, v = arrays()
    state = foci.State("softmax", heads=4, kv_heads=2, dim=8, batch=2)
    state.append(None, k[:, :, :29], v[:, :, :29])
    assert state.lengths == [29, 29]
    found = state.step(q[:, :, 29:], k[:, :, 29:], v[:, :, 29:])
    np.testing.assert_allclose(found, foci.attention(q, k, v, causal=True)[:, :, 29:], atol=3e-6)


def test_beams():
    q, k, v = arrays()
    state = foci.State("softmax", heads=4, kv_heads=2, dim=8, batch=2)
    state.step(q[:, :, :20], k[:, :, :20], v[:, :, :20])
    copy = state.copy()
    state.reorder([1, 1, 0])
    assert len(state) == 3 and len(copy) == 2
    piece = [a[[1, 1, 0], :, 20:21] for a in (q, k, v)]
    found = state.step(*piece)
    np.testing.assert_allclose(found[0], found[1])
    want = foci.attention(q, k, v, causal=True)[:, :, 20:21]
    np.testing.assert_allclose(found, want[[1, 1, 0]], atol=3e-6)
    assert copy.lengths == [20, 20]
    np.testing.assert_allclose(copy.step(*(a[:, :, 20:21] for a in (q, k, v))), want, atol=3e-6)


def test_saving_and_cutting():
    q, k, v = arrays()
    state = foci.State("softmax", heads=4, kv_heads=2, dim=8, batch=2)
    state.reserve(100)
    state.step(*(a[:, :, :20] for a in (q, k, v)))
    saved = state.save()
    other = foci.State("softmax", heads=4, kv_heads=2, dim=8, batch=1)
    other.restore(saved)
    assert other.lengths == [20, 20]
    other.truncate([10, 10])
    found = other.step(*(a[:, :, 10:11] for a in (q, k, v)))
    np.testing.assert_allclose(found, foci.attention(q, k, v, causal=True)[:, :, 10:11], atol=3e-6)
    state.reset()
    assert state.lengths == [0, 0]
    with pytest.raises(foci.Error):
        other.restore([b"nothing of the kind"])
    with pytest.raises(foci.Error):
        foci.State("linear", heads=4, kv_heads=2, dim=8).restore(saved)


def test_wrong_steps():
    q, k, v = arrays()
    state = foci.State("softmax", heads=4, kv_heads=2, dim=8, batch=2)
    for given, sentence in (((q[:1], k, v), r"q has shape .* not \(2, 4, n, 8\)"), ((q, q, v), "k has shape"),
                            ((q[:, :, :3], k, v), "rows"), ((None, None, None), "none of q, k and v"),
                            ((q.astype("f2"), k, v), "dtype float16")):
        with pytest.raises(foci.Error, match=sentence):
            state.step(*given)
    assert state.lengths == [0, 0]
    with pytest.raises(foci.Error, match="tokens add up to 3, there are 30 rows"):
        state.step(*(a[0].transpose(1, 0, 2) for a in (q, k, v)), tokens=[1, 2])
    with pytest.raises(foci.ArgumentError, match="0 or more"):
        state.step(*(a[0].transpose(1, 0, 2) for a in (q, k, v)), tokens=[31, -1])
    with pytest.raises(foci.ArgumentError, match="sequence 2: there are 0 to 1"):
        state.reorder([2])
    for wrong in (-1, 2**64, [0, 2**64]):
        with pytest.raises(foci.ArgumentError, match="length=.*: it has to be 0 or more, and fit into 64 bits"):
            state.truncate(wrong)
    with pytest.raises(foci.ArgumentError, match="tokens=1844"):
        state.reserve(2**64)
    state.append(None, k[:, :, :5], v[:, :, :5])
    state.truncate(np.int64(3))
    assert state.lengths == [3, 3]
    with pytest.raises(foci.UnsupportedError, match="nystrom cannot be causal"):
        foci.State("nystrom", heads=2, dim=8)
    empty = state.step(q[:, :, :0], k[:, :, :0], v[:, :, :0])
    assert empty.shape == (2, 4, 0, 8)
