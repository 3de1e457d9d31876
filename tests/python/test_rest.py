"""Products, analysis, pictures, specs, lists."""
import inspect
import math
import xml.dom.minidom

import numpy as np
import pytest
from conftest import draw, softmax

import foci

A, B = draw(9, 7, seed=1), draw(7, 6, seed=2)


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("activation,function", [
    ("none", lambda x: x), ("relu", lambda x: np.maximum(x, 0)), ("silu", lambda x: x / (1 + np.exp(-x))),
    ("gelu", lambda x: x * (1 + np.vectorize(math.erf)(x / math.sqrt(2))) / 2)])
def test_products(activation, function, transposed):
    bias, residual, dc = draw(6, seed=3), draw(9, 6, seed=4), draw(9, 6, seed=5)
    b = np.ascontiguousarray(B.T).T if transposed else B

    def exact(a, b, bias):
        return residual + function(a.astype(float) @ b + bias)

    found, vjp = foci.product_vjp(A, b, bias=bias, activation=activation, residual=residual)
    np.testing.assert_allclose(found, exact(A, B, bias), atol=2e-6)
    np.testing.assert_array_equal(found, foci.product(A, b, bias=bias, activation=activation, residual=residual))
    grads = vjp(dc)
    step = 1e-4
    for i, (given, grad) in enumerate(zip((A, B, bias), grads)):
        way = draw(*given.shape, seed=10 + i)
        given = [x.astype(float) for x in (A, B, bias)]
        up, down = list(given), list(given)
        up[i], down[i] = given[i] + step * way, given[i] - step * way
        slope = ((exact(*up) - exact(*down)) * dc).sum() / (2 * step)
        assert slope == pytest.approx(float((grad.astype(float) * way).sum()), rel=1e-3, abs=1e-3)


def test_gated_products():
    found = foci.product(A, B, gated=True, activation="silu")
    g, u = np.split(A.astype(float) @ B, 2, axis=1)
    np.testing.assert_allclose(found, g / (1 + np.exp(-g)) * u, atol=2e-6)
    assert foci.product(A[::2, ::2], B[::2]).shape == (5, 6)
    for call, sentence in ((lambda: foci.product(A, A), "the columns of a are the rows of b"),
                           (lambda: foci.product(A, B, activation="tanh"), 'activation "tanh"'),
                           (lambda: foci.product(A[0], B), "a matrix has two axes"),
                           (lambda: foci.product(A, B, bias=np.ones(5, "f4")), "bias has shape"),
                           (lambda: foci.product(A, B[:, :5], gated=True), "two factors"),
                           (lambda: foci.product_vjp(A, B)[1](A), "dc has shape")):
        with pytest.raises(foci.ArgumentError, match=sentence):
            call()


def test_conversion():
    values = np.array([1, 1 + 2**-11, 65520, np.inf, np.nan, -0.0, 1e-8], np.float32)
    with np.errstate(over="ignore"):
        halves = values.astype(np.float16)
    np.testing.assert_array_equal(foci.convert(values, "f16").view(np.uint16), halves.view(np.uint16))
    ml_dtypes = pytest.importorskip("ml_dtypes")
    np.testing.assert_array_equal(foci.convert(values, "bf16").astype(np.float32),
                                  values.astype(ml_dtypes.bfloat16).astype(np.float32))
    with pytest.raises(foci.DTypeError, match="dtype int8"):
        foci.convert(values, "int8")


def test_weights_and_errors():
    q, k, v = (draw(1, 2, 20, 8, seed=i) for i in range(3))
    weights = foci.weights(q, k, spec="local(window=3)", causal=True)
    assert weights.shape == (1, 2, 20, 20) and not np.triu(weights[0, 0], 1).any()
    np.testing.assert_allclose(weights @ v, foci.attention(q, k, v, "local(window=3)", causal=True), atol=1e-5)
    far = foci.attention(q, k, v, "local(window=3)").astype(float) - softmax(q, k, v)
    want = np.sqrt((far**2).sum((0, 2, 3)) / (softmax(q, k, v) ** 2).sum((0, 2, 3)))
    np.testing.assert_allclose(foci.softmax_errors(q, k, v, "local(window=3)"), want, rtol=1e-4)
    layer = foci.Layer("local(window=3)", width=16, heads=2)
    x = draw(1, 20, 16)
    assert foci.layer_softmax_errors(layer, x).shape == (2,)
    spread = foci.concentration(layer.weights(x)).mean((0, 2))
    np.testing.assert_allclose(foci.layer_concentration(layer, x), spread, rtol=1e-5)


def test_heads():
    rows = 9
    even = np.tri(rows) / np.arange(1, rows + 1)[:, None]
    before = np.eye(rows, k=-1)
    before[0, 0] = 1
    one, two = foci.head_figures(np.stack([even, before]).astype("f4"), causal=True)
    assert one["concentration"] == pytest.approx(1) and one["entropy"] == pytest.approx(
        np.log(np.arange(1, rows + 1)).mean(), rel=1e-5)
    assert two["entropy"] == 0 and two["effective_rank"] <= rows and two["previous"] == pytest.approx(1, abs=0.2)
    with pytest.raises(foci.ArgumentError, match="weights has shape"):
        foci.head_figures(even)


def test_concentration():
    assert foci.concentration([0, 3, 0, 0]) == 0.5 and foci.concentration(-np.ones(7, "f4")) == pytest.approx(1)
    assert math.isnan(foci.concentration(np.zeros(3)))
    for kind, options in (("exp", {"gamma": 1.0}), ("relu2", {"beta": 0.5, "gamma": 1.0}),
                          ("identity", {"beta": 0.2, "gamma": 2.0}), ("linear", {"dim": 4, "ratio": 1.0}),
                          ("decay", {"decay": 0.9, "n": 50})):
        value = foci.concentration_theory(kind, **options)
        assert foci.concentration_quadrature(kind, **options) == pytest.approx(value, rel=1e-9)
    assert foci.concentration_theory("exp", gamma=1.0) == pytest.approx(math.exp(-0.5))
    sampled = foci.concentration_sample("exp", draws=20000, gamma=1.0)
    assert abs(sampled.value - math.exp(-0.5)) < 5 * sampled.error
    for call, sentence in ((lambda: foci.concentration_theory("log"), 'kind "log"'),
                           (lambda: foci.concentration_theory("exp", sigma=1), "there is no sigma="),
                           (lambda: foci.concentration_theory("decay", decay=2.0, n=3), "."),
                           (lambda: foci.concentration(np.float32(3)), "weights is a number")):
        with pytest.raises(foci.Error, match=sentence):
            call()


def test_laws_of_different_widths():
    for options in ({"q": [1., 2.], "mean": np.ones(4), "covariance": np.eye(4)},
                    {"q": [1., 2., 3.], "covariance": np.eye(2)}, {"mean": [1., 2.], "dim": 3}):
        with pytest.raises(foci.ArgumentError, match="has shape .*, with dim"):
            foci.concentration_theory("linear", **options)


def test_estimates():
    x = draw(5, 8, seed=1, scale=0.3)
    y = draw(5, 8, seed=2, scale=0.3)
    found = foci.estimator("performer(features=16)", x, y, draws=2000, seed=1)
    np.testing.assert_allclose(found.exact, np.exp((x.astype(float) * y).sum(1)), rtol=1e-6)
    assert (np.abs(found.mean - found.exact) < 6 * np.sqrt(found.variance / 2000)).all()
    with pytest.raises(foci.UnsupportedError):
        foci.estimator("softmax", x, y)
    with pytest.raises(foci.ArgumentError, match="x and y have shapes"):
        foci.estimator("performer", x, y[:3])
    kept = foci.orthogonality("softmax frozen", 64, 4)
    assert kept["gram"].measured < 1e-5 and kept["parameters"].measured == 2 * 64 * 64
    with pytest.raises(foci.UnsupportedError):
        foci.orthogonality("softmax", 64, 4)


def test_pictures(tmp_path):
    picture = foci.show_pattern("bigbird(block=8)", n=96)
    assert xml.dom.minidom.parseString(picture._repr_svg_()).documentElement.tagName == "svg"
    picture.save(tmp_path / "p.svg")
    assert (tmp_path / "p.svg").read_text(encoding="utf-8") == picture.svg
    assert "softmax" in foci.show_pattern(2 * foci.softmax() + 2 * foci.relu2(), n=16, heads=4, causal=True, seed=1).svg
    with pytest.raises(foci.Error, match="unknown mechanism"):
        foci.show_pattern("bigbirb")
    with pytest.raises(foci.Error):
        foci.show_report(str(tmp_path))
    report = foci.Report("a < b", "<p>page</p>")
    assert repr(report) == "a < b" and "&lt;p&gt;page" in report._repr_html_()
    weights = np.tri(6, dtype=np.float32) / np.arange(1, 7)[:, None]
    for given in (weights, np.stack([weights, weights.T]), weights[None, None]):
        assert xml.dom.minidom.parseString(foci.show_weights(given).svg).documentElement.tagName == "svg"
    for wrong in (weights[0], weights[:0]):
        with pytest.raises(foci.ArgumentError, match="weights has shape"):
            foci.show_weights(wrong)


def test_specs():
    assert foci.local(window=64) | foci.rope() == "local(window=64) rope"
    spec = 4 * (foci.local(64) | foci.rope() | foci.cap(c=20)) + foci.softmax() * 4
    assert spec == "4*local(window=64) rope cap(c=20) + 4*softmax" and isinstance(spec, foci.Spec)
    assert foci.routed(inner=foci.softmax() | foci.rope(), routes=4) == "routed(inner=softmax rope, routes=4)"
    assert foci.Plan(spec, heads=8, len_q=9, dim=4).spec.startswith("4*local(window=64")
    with pytest.raises(TypeError):
        foci.scale()  # its argument must be given


def test_everything_public_is_explained():
    assert len(set(foci.__all__)) == len(foci.__all__)
    for name in foci.__all__:
        value = getattr(foci, name)
        assert value.__doc__, name
        for member, inner in vars(value).items() if isinstance(value, type) else ():
            if not member.startswith("_") and (inspect.isfunction(inner) or isinstance(inner, (property, classmethod))):
                assert inspect.getdoc(inner), f"{name}.{member}"


def test_every_function_is_its_descriptor():
    entries = {**foci.mechanisms(), **foci.modifiers()}
    for name, entry in entries.items():
        function = getattr(foci, "global_" if name == "global" else name)
        assert entry["summary"][1:] in function.__doc__
        parameters = inspect.signature(function).parameters
        assert [p.rstrip("_") for p in sorted(parameters)] == sorted(a["name"] for a in entry["arguments"])
        for argument in entry["arguments"]:
            assert argument["help"].split()[0] in function.__doc__
        needed = {p.name: 1 for p in parameters.values() if p.default is inspect.Parameter.empty}
        text = function(**needed)
        # what is said by default is what the library has by default
        given = {p.name: p.default for p in parameters.values() if p.default is not inspect.Parameter.empty}
        said = ", ".join(f"{key.rstrip('_')}={value}" for key, value in {**needed, **given}.items())
        if entry["kind"] == "mechanism":
            lists = {"block": {"layout": [1]}}.get(name)
            options = {"heads": 1, "kv_heads": 2 if name == "routed" else 1, "len_q": 16, "dim": 8, "dim_x": 8, "lists": lists}
            assert foci.Plan(text, **options).spec == foci.Plan(f"{name}({said})" if said else name, **options).spec
    assert foci.mechanisms()["local"]["arguments"][0]["default"] == 256 and "local" in repr(foci.mechanisms()["local"])
