"""make.py -- write cases.txt: what SciPy, NumPy and sacrebleu make of small samples.

    python3 -m venv DIR && DIR/bin/pip install numpy==2.4.6 scipy==1.17.1 sacrebleu==2.6.0
    DIR/bin/python tests/golden/stats/make.py

stats.c holds the library to it.  Each case is the arguments and what has to come out, under
the names of the functions and fields of stats.h.  Sentences are lines of text/corpus.txt, with
words left out and exchanged by two "systems".  sacrebleu sums in single precision; the scores
and differences of the same resamples in double precision are computed here.
"""
import math
import os
import pathlib
import random
import sys

import numpy as np
from sacrebleu.metrics import BLEU, CHRF
from sacrebleu.significance import PairedTest
from scipy import special, stats

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
from streams import Stream  # noqa: E402

LINES = [line for line in (HERE.parent / "text/corpus.txt").read_text().split("\n") if len(line.split()) > 4]


def numbers(values):
    return " ".join("%d" % v if v == int(v) and abs(v) < 1e15 else repr(float(v)) for v in np.ravel(values))


class Case:
    def __init__(self, kind, name):
        self.lines = ["case " + name, "kind " + kind]

    def add(self, **values):
        for key, value in values.items():
            self.lines.append(key + " " + (value if isinstance(value, str) else numbers(value)))
        return self

    def text(self):
        return "\n".join(self.lines) + "\nend\n\n"


def distributions():
    """Where SciPy itself has ten digits; its quantiles near the middle have fewer."""
    df, t = map(np.ravel, np.meshgrid([0.5, 1, 2, 3, 4, 9, 30, 1000, 1e6], [-40, -8, -3, -1.5, -1, -0.3, -0.01, 0, 0.2, 1, 2, 5]))
    yield Case("t_cdf", "t").add(x=t, df=df, y=stats.t.cdf(t, df))
    df, p = map(np.ravel, np.meshgrid([1, 2, 3, 4, 9, 30, 1000, 1e6],
                                      [1e-10, 1e-4, .001, .005, .025, .05, .1, .25, .3, .4, .5, .6, .75, .95, .975, .9999]))
    yield Case("t_quantile", "t").add(x=p, df=df, y=stats.t.ppf(p, df))
    p = np.array([1e-300, 1e-100, 1e-20, 1e-6, .001, .025, .1, .25, .4, .4999, .5, .75, .9, .975, .999, .999999])
    yield Case("normal_quantile", "normal").add(x=p, df=0 * p, y=stats.norm.ppf(p))
    draw = random.Random(1)
    a, b = ([10 ** draw.uniform(-1, 4) for _ in range(60)] for _ in range(2))
    mean = [u / (u + v) for u, v in zip(a, b)]
    spread = [math.sqrt(u * v / (u + v + 1)) / (u + v) for u, v in zip(a, b)]
    x = [min(max(m + draw.uniform(-4, 4) * s, 1e-9), 1 - 1e-9) for m, s in zip(mean, spread)]
    yield Case("beta_cdf", "beta").add(x=x, df=a, b=b, y=special.betainc(a, b, x))


def samples():
    draw = random.Random(2)
    yield "two", [1.5, 2.5]
    yield "three", [33.1, 33.9, 32.4]
    yield "even", [4.0, 1.0, 3.0, 2.0]
    yield "tiny", [1e-200, 3e-200, 2e-200]
    yield "far from 0", [1e9 + v for v in (1.0, 2.0, 4.0, 7.0, 11.0)]
    yield "outlier", [0.99, 0.98, 0.995, 0.02, 0.99, 0.97, 0.99]
    for n in (8, 9, 30):
        yield "normal %d" % n, [draw.gauss(0, 1) for _ in range(n)]


def t_interval(values, level):
    return np.array(stats.t.interval(level, len(values) - 1, loc=np.mean(values), scale=stats.sem(values)))


def summaries():
    for name, values in samples():
        for level in (0.95, 0.5):
            scale = 1e-200 if name == "tiny" else 1  # squares of what is so small are 0
            x = np.array(values) / scale
            yield Case("summary", "%s, %g" % (name, level)).add(
                values=values, level=[level], mean=[x.mean() * scale], deviation=[x.std(ddof=1) * scale],
                median=[np.median(values)], iqm=[stats.trim_mean(values, 0.25)], interval=t_interval(x, level) * scale)


def bootstrap(differences, level, resamples, seed):
    """The share (1 - level)/2 of the means on either side."""
    stream, n = Stream(seed, 0), len(differences)
    draws = [[min(int(stream.uniform() * n), n - 1) for _ in range(n)] for _ in range(resamples)]
    means = np.sort(np.array(differences)[np.array(draws)].mean(axis=1))
    out = round(resamples * (1 - level) / 2)
    return means[out], means[-1 - out]


def pairs():
    draw = random.Random(3)
    arms = [("five", [33.1, 33.9, 32.4, 33.0, 33.3], [32.0, 33.5, 32.1, 31.8, 33.4]),
            ("two", [1.0, 2.0], [0.5, 1.75]),
            ("large effect", [10.0, 11.0, 12.5], [0.0, 1.5, 2.0])]
    for n in (4, 20):
        a = [draw.gauss(0, 1) for _ in range(n)]
        arms.append(("normal %d" % n, a, [v + draw.gauss(0.3, 0.5) for v in a]))
    for name, a, b in arms:
        d = np.array(a) - np.array(b)
        for level, resamples, seed in ((0.95, 1000, 7), (0.9, 200, 0)):
            yield Case("pairs", "%s, %g" % (name, level)).add(
                a=a, b=b, level=[level], resamples=[resamples], seed=[seed], difference=[d.mean()], deviation=[d.std(ddof=1)],
                interval=t_interval(d, level), p=[stats.ttest_rel(a, b).pvalue], bootstrap=bootstrap(d, level, resamples, seed))


def holm():
    """From the definition: sorted p values by n, n - 1, ..., and never smaller than one before."""
    draw = random.Random(4)
    for name, p in (("three", [0.01, 0.04, 0.03]), ("one", [0.2]), ("ties", [0.02, 0.02, 0.5, 0.02]), ("many", [draw.random() ** 4 for _ in range(20)])):
        order = np.argsort(p, kind="stable")
        adjusted = np.empty(len(p))
        adjusted[order] = np.minimum(1, np.maximum.accumulate(np.array(p)[order] * np.arange(len(p), 0, -1)))
        yield Case("holm", name).add(p=p, adjusted=adjusted)


def disturbed(line, share, draw):
    words = [w for w in line.split() if draw.random() > share / 2] or ["the"]
    for _ in range(int(share * len(words))):
        i, j = draw.randrange(len(words)), draw.randrange(len(words))
        words[i], words[j] = words[j], words[i]
    return " ".join(words)


def systems():
    """Name, number of sentences, and the two arms."""
    draw = random.Random(5)
    make = lambda n, share: [disturbed(line, share, draw) for line in LINES[:n]]
    base = make(40, 0.3)
    yield "alike", LINES[:40], base, make(40, 0.3)
    yield "apart", LINES[:40], base, make(40, 0.6)
    yield "the same", LINES[:20], base[:20], base[:20]
    yield "few differ", LINES[:30], base[:30], base[:3] + make(30, 0.8)[3:6] + base[6:30]


def bleu_rows(metric, texts, references):
    """In the order of foci_bleu_counts."""
    rows = np.array(metric._extract_corpus_statistics(texts, [references]), dtype=float)
    return np.hstack([rows[:, 2:], rows[:, :2]])


def chrf_rows(metric, texts, references):
    """In the order of foci_chrf_counts."""
    rows = np.array(metric._extract_corpus_statistics(texts, [references]), dtype=float)
    return np.hstack([rows[:, 0::3], rows[:, 1::3], rows[:, 2::3]])


def bleu_score(metric, sums):
    return metric._compute_score_from_stats(np.hstack([sums[8:], sums[:8]])).score


def chrf_score(metric, sums):
    return metric._compute_score_from_stats(np.stack([sums[:6], sums[6:12], sums[12:]], axis=1).ravel()).score


def ratio_score(_, sums):
    return sums[0] / sums[1]


SCORES = {"bleu": (BLEU, bleu_rows, bleu_score), "chrf": (CHRF, chrf_rows, chrf_score)}


def tests(score, a, b, samples, trials, seed):
    """In double precision, of the same resamples: the numbers of NumPy's generator as
    sacrebleu draws them."""
    n = len(a)
    one, two = score(a.sum(0)), score(b.sum(0))
    index = np.random.default_rng(seed).choice(n, size=(samples, n), replace=True)
    found = np.array([[score(x[i].sum(0)) for x in (a, b)] for i in index])
    d = found[:, 0] - found[:, 1]
    kept = np.random.default_rng(seed).integers(2, size=(trials, n), dtype=bool)
    swapped = np.array([[score(k @ x + ~k @ y) for x, y in ((a, b), (b, a))] for k in kept])
    statistics = np.abs(d) - np.abs(d).mean(), np.abs(swapped[:, 0] - swapped[:, 1])
    near = 1e-12 * (abs(one) + abs(two))
    out, ordered = samples // 40, np.sort(np.column_stack([found, d]), axis=0)
    low, high = ordered[out], ordered[samples - 1 - out]
    p = [[(1 + np.sum(s >= abs(one - two) - near)) / (1 + len(s)), (1 + np.sum(s > abs(one - two))) / (1 + len(s))] for s in statistics]
    return dict(score=[one, two], interval=[low[2], high[2]], mean=found.mean(0), half=(high - low)[:2] / 2, bootstrap_p=p[0],
                randomisation_p=p[1])


def sacrebleu(metric, references, a, b, samples, trials, seed):
    """mean, half a and b, p of the bootstrap, p of the randomisation, as it prints them."""
    os.environ["SACREBLEU_SEED"] = str(seed)
    found = []
    for kind, n in (("bs", samples), ("ar", trials)):
        _, scores = PairedTest([("a", a), ("b", b)], {"m": metric}, [references], test_type=kind, n_samples=n)()
        found.append(next(v for key, v in scores.items() if key != "System"))
    one, two = found[0]
    return [one.mean, two.mean, one.ci, two.ci, two.p_value, found[1][1].p_value]


def translations():
    for name, references, a, b in systems():
        for kind, (make, rows, score) in SCORES.items():
            for samples, trials, seed in ((1000, 1000, 12345), (120, 99, 2 ** 40 + 1))[:1 if name == "apart" else 2]:
                metric = make()
                x, y = rows(metric, a, references), rows(metric, b, references)
                yield Case("sentences", "%s, %s, seed %d" % (name, kind, seed)).add(
                    counts=kind, samples=[samples], trials=[trials], seed=str(seed), a=x, b=y,
                    **tests(lambda sums: score(metric, sums), x, y, samples, trials, seed),
                    sacrebleu=sacrebleu(metric, references, a, b, samples, trials, seed))


def ratios():
    """Accuracy, where samples often have just the observed difference, and losses."""
    draw = random.Random(6)
    hits = lambda n, p: np.array([[sum(draw.random() < p for _ in range(3)), 3] for _ in range(n)], dtype=float)
    nats = lambda n, shift: np.array([[(k := draw.randint(1, 9)) * draw.uniform(1, 2) + shift, k] for _ in range(n)])
    for name, a, b in (("hits", hits(50, 0.7), hits(50, 0.55)), ("few hits", hits(5, 0.9), hits(5, 0.2)),
                       ("nats", nats(40, 0), nats(40, 0.4)), ("one differs", *([hits(9, 0.8)] * 2))):
        if name == "one differs":
            b = a.copy()
            b[4, 0] = (a[4, 0] + 2) % 4
        yield Case("sentences", name).add(counts="ratio", samples=[1000], trials=[1000], seed="12345", a=a, b=b,
                                          **tests(lambda sums: ratio_score(None, sums), a, b, 1000, 1000, 12345))


def draws():
    """Integers and bits of NumPy's generator, many of them in one number."""
    for seed in (12345, 1, 2 ** 63 + 5):
        for n in (2, 3, 10, 1000, 2 ** 31 + 11, 2 ** 32 - 1):
            yield Case("integers", "%d below %d" % (seed, n)).add(
                seed=str(seed), n=str(n), drawn=np.random.default_rng(seed).integers(n, size=64))
        bits = np.random.default_rng(seed).integers(2, size=80, dtype=bool)
        yield Case("bits", "of %d" % seed).add(seed=str(seed), drawn=bits)


def main():
    with open(HERE / "cases.txt", "w", encoding="utf-8") as f:
        f.write("# Made by make.py.\n\n")
        for part in (distributions, summaries, pairs, holm, translations, ratios, draws):
            for case in part():
                f.write(case.text())


main()
