"""tasks_recall.py -- examples of the tasks of recall and of MAD, from their definitions (docs/data.md)."""

import numpy as np

from streams import GOLDEN, WORD, Stream, mix


def shared(seed, *words):
    """A stream that several examples have in common."""
    stream = Stream(0, 0)
    stream.state = seed
    for word in words:
        stream.state = mix((stream.state + GOLDEN * word) & WORD)
    stream.below = lambda n: min(int(stream.uniform() * n), n - 1)
    return stream


def fresh(draw, used, first, count):
    """A token of `count` from `first` on that was not used."""
    while True:
        token = first + draw.below(count)
        if token not in used:
            used.add(token)
            return token


def shuffled(draw, things):
    """Fisher and Yates from the front."""
    things = list(things)
    for i in range(len(things)):
        j = i + draw.below(len(things) - i)
        things[i], things[j] = things[j], things[i]
    return things


def slots(draw, count, of, power, gap):
    """`count` of the places 0 to of - 1, in the order they are drawn in."""
    weights = np.arange(1, of + 1).astype(float) ** (power - 1) if gap == "power" else np.ones(of)
    for _ in range(count):
        reach = np.cumsum(weights)
        slot = int(np.searchsorted(reach, draw.uniform() * reach[-1], side="right"))
        weights[slot] = 0
        yield slot


class Sequence:
    """Tokens with labels at some places, and what each label is reported by."""

    def __init__(self, length, filler=0):
        self.ids = np.full(length, filler)
        self.at = {}

    def ask(self, at, label, *slices):
        self.at[at] = (label,) + slices

    def noise(self, draw, begin, kind, vocab, used):
        for i in range(begin, len(self.ids)):
            if kind == "noise" and self.ids[i] == 0:
                self.ids[i] = draw.below(vocab)
                while self.ids[i] in used:
                    self.ids[i] = draw.below(vocab)

    def done(self):
        labels = np.full(len(self.ids), -1)
        order = sorted(self.at)
        for i in order:
            labels[i] = self.at[i][0]
        return {"ids": self.ids, "labels": labels,
                "slices": np.array([self.at[i][1:] for i in order]).T.ravel()}


# Questions behind pairs


def mqar(draw, split, vocab=8192, length=64, pairs=4, power=0.01, filler="zero", gap="power", compat="none",
         by_length=False):
    used, half, s = set(), vocab // 2, Sequence(length)
    keys = [fresh(draw, used, 1, half - 1) for _ in range(pairs)]
    values = [fresh(draw, used, half, vocab - half) for _ in range(pairs)]
    s.ids[:2 * pairs:2], s.ids[1:2 * pairs:2] = keys, values
    for p, slot in enumerate(slots(draw, pairs, (length - 2 * pairs) // 2, power, gap)):
        at = 2 * pairs + 2 * slot
        s.ids[at] = keys[p]
        s.ask(at, values[p], pairs, at - 2 * p, *([length] if by_length else []))
    s.noise(draw, 2 * pairs, filler, vocab, used if compat == "none" else ())
    return s.done()


MIX_TRAIN = {(64, 4): 5, (128, 8): 1, (256, 16): 1, (256, 32): 1, (256, 64): 1}
MIX_TEST = [(64, 4), (64, 8), (64, 16), (128, 32), (256, 64), (512, 128), (1024, 256)]


def mqar_mix(draw, split, form="short", filler="noise", **args):
    if split == "train":
        run = [setting for setting, share in MIX_TRAIN.items() for _ in range(share)]
    else:
        run = MIX_TEST if form == "published" else MIX_TEST[:5]
    number = 1 + ("train", "valid", "test").index(split)
    order = shuffled(shared(draw.seed, number, 0, draw.index // len(run) + 1), run)
    length, pairs = order[draw.index % len(run)]
    return mqar(draw, split, length=length, pairs=pairs, filler=filler, by_length=True, **args)


def mqar_update(draw, split, vocab=8192, length=64, pairs=8, updates=4, power=0.01, filler="zero", gap="power"):
    used, half, s = set(), vocab // 2, Sequence(length)
    keys = [fresh(draw, used, 1, half - 1) for _ in range(pairs)]
    again = set()
    stream = list(range(pairs)) + [fresh(draw, again, 0, pairs) for _ in range(updates)]
    value, last = {}, {}
    for i, p in enumerate(stream):
        value[p], last[p] = fresh(draw, used, half, vocab - half), 2 * i
        s.ids[2 * i], s.ids[2 * i + 1] = keys[p], value[p]
    begin = 2 * len(stream)
    for p, slot in enumerate(slots(draw, pairs, (length - begin) // 2, power, gap)):
        at = begin + 2 * slot
        s.ids[at] = keys[p]
        s.ask(at, value[p], int(p in again), at - last[p])
    s.noise(draw, begin, filler, vocab, used)
    return s.done()


def mqar_pair(draw, split, vocab=8192, length=64, grid=3, power=0.01, filler="zero", gap="power"):
    used, half, s, n = set(), vocab // 2, Sequence(length), grid * grid
    first = [fresh(draw, used, 1, half - 1) for _ in range(grid)]
    second = [fresh(draw, used, 1, half - 1) for _ in range(grid)]
    keys = shuffled(draw, [(a, b) for a in first for b in second])
    values = [fresh(draw, used, half, vocab - half) for _ in keys]
    s.ids[:3 * n] = np.array([key + (value,) for key, value in zip(keys, values)]).ravel()
    for k, slot in enumerate(slots(draw, n, (length - 3 * n) // 3, power, gap)):
        at = 3 * n + 3 * slot
        s.ids[at:at + 2] = keys[k]
        s.ask(at + 1, values[k], n, at - 3 * k)
    s.noise(draw, 3 * n, filler, vocab, used)
    return s.done()


# MAD


def every(found):
    """As published, in training: every token is the label of the position before."""
    at = found["labels"][:-1] >= 0
    slices = np.zeros((2, len(at)), int)
    slices[:, at] = found["slices"].reshape(2, -1)
    found["labels"][:-1] = found["ids"][1:]
    found["slices"] = slices.ravel()
    return found


def mad_recall(draw, split, vocab=16, length=128, compat="none", noise=None, symbols=0):
    keys, s = (vocab - symbols) // 2, Sequence(length)
    values = vocab - symbols - keys
    kept = None if noise is None else draw.below(length // 2 - 1)
    bound, last = {}, {}
    for i in range(length // 2):
        at = 2 * i
        if i == length // 2 - 1:
            key = list(bound)[draw.below(len(bound))]
        elif noise and i != kept and draw.uniform() < noise:
            s.ids[at:at + 2] = [1 + keys + values + draw.below(symbols) for _ in range(2)]
            continue
        else:
            key = 1 + draw.below(keys)
        if key in bound:
            s.ask(at, bound[key], len(bound), at - last[key])
        else:
            bound[key] = 1 + keys + draw.below(values)
        s.ids[at:at + 2], last[key] = (key, bound[key]), at
    found = s.done()
    return every(found) if compat == "mad" and split == "train" else found


def mad_noisy(draw, split, vocab=32, noise=0.2, symbols=16, **args):
    return mad_recall(draw, split, vocab=vocab, noise=noise, symbols=symbols, **args)


def mad_fuzzy(draw, split, vocab=16, length=128, key=3, value=3, compat="none"):
    mad = compat == "mad"
    n_keys = (vocab - mad) // 2
    n_values = vocab - mad - n_keys
    bound, seen, ids, asks = {}, {}, [], []

    def motif(size, first, count):
        used, found = set(), []
        while len(found) < size:
            found.append(fresh(draw, used, first, count))
        return tuple(found)

    def drawn():
        k = motif(key if split == "test" else 1 + draw.below(key), 1, n_keys)
        if k not in bound:
            bound[k] = motif(1 + draw.below(value), 1 + n_keys, n_values)
        return k

    def put(k, asked):
        ids.extend(k + bound[k])
        end = len(ids) - len(bound[k])
        for i, v in enumerate(bound[k] if asked else ()):
            asks.append((end + i - 1, v, len(k), end - seen[k] if k in seen else 0))
        seen[k] = end

    last = drawn()
    size = len(last) + len(bound[last])
    room = length - size
    place = draw.below(length - 2 * size if mad else room - 2 * (key + value) + 1)
    while len(ids) + key + value <= room:
        k = last if len(ids) >= place and last not in seen else drawn()
        put(k, k in seen)
    put(last, True)
    front = length - len(ids) if mad else 0
    s = Sequence(front + len(ids), vocab)
    s.ids[front:] = ids
    for at, *rest in asks:
        s.ask(front + at, *rest)
    found = s.done()
    return every(found) if mad and split == "train" else found


def mad_copy(draw, split, vocab=16, length=256, tokens=16, positions="uniform"):
    blank, mark, before = vocab - 1, vocab, length - tokens - 1
    s = Sequence(length, blank)
    s.ids[before] = mark
    if positions == "mad":
        gaps = np.bincount([draw.below(tokens) for _ in range(before - tokens)], minlength=tokens)
        places = np.cumsum(gaps + 1) - 1
    else:
        places = []
        for i in range(before):
            if len(places) < tokens and draw.below(before - i) < tokens - len(places):
                places.append(i)
    for i, place in enumerate(places):
        s.ids[place] = 1 + draw.below(vocab - 2)
        s.ask(before + 1 + i, s.ids[place], i, before + 1 + i - place)
    return s.done()


def mad_compress(draw, split, vocab=16, length=32, compat="none"):
    s = Sequence(length, vocab)
    s.ids[:-1] = [1 + draw.below(vocab - 1) for _ in range(length - 1)]
    for i in range(length - (compat == "none")):
        s.ask(i, s.ids[i], i, length - 1 - i)
    return s.done()


def mad_memorise(draw, split, vocab=256, length=32, map=1):
    keys = (vocab - 1) // 2
    values, stream = list(range(1 + keys, vocab)), shared(map, 0)
    value = stream.choose(keys, values)
    s = Sequence(length, vocab)
    for i in range(0, length, 2):
        key = draw.below(keys)
        s.ids[i] = 1 + key
        s.ask(i + 1, value[key], i // 2)
    return s.done()


GENERATORS = {
    "mqar": mqar, "mqar-mix": mqar_mix, "mqar-update": mqar_update, "mqar-pair": mqar_pair,
    "mad-recall": mad_recall, "mad-noisy": mad_noisy, "mad-fuzzy": mad_fuzzy, "mad-copy": mad_copy,
    "mad-compress": mad_compress, "mad-memorise": mad_memorise,
}

CASES = (  # name, arguments, examples
    ("mqar-mix", {"vocab": 300}, 6),
    ("mqar-mix", {"vocab": 514, "form": "published", "gap": "uniform", "filler": "zero"}, 4),
    ("mqar-update", {}, 3),
    ("mqar-update", {"vocab": 9, "length": 15, "pairs": 3, "updates": 1, "filler": "noise", "power": 0.4}, 3),
    ("mqar-update", {"vocab": 12, "length": 23, "pairs": 3, "updates": 3, "gap": "uniform"}, 3),
    ("mqar-pair", {}, 3),
    ("mqar-pair", {"vocab": 10, "length": 27, "grid": 2, "filler": "noise", "gap": "uniform"}, 3),
    ("mad-recall", {}, 2),
    ("mad-recall", {"vocab": 5, "length": 12, "compat": "mad"}, 3),
    ("mad-noisy", {}, 3),
    ("mad-noisy", {"vocab": 9, "length": 14, "noise": 0.8, "symbols": 4}, 4),
    ("mad-fuzzy", {}, 3),
    ("mad-fuzzy", {"vocab": 7, "length": 24, "key": 2, "value": 3, "compat": "mad"}, 5),
    ("mad-fuzzy", {"vocab": 6, "length": 16, "key": 2, "value": 1}, 4),
    ("mad-copy", {"length": 64}, 2),
    ("mad-copy", {"vocab": 5, "length": 20, "tokens": 4, "positions": "mad"}, 3),
    ("mad-copy", {"vocab": 4, "length": 9, "tokens": 4}, 3),
    ("mad-compress", {}, 2),
    ("mad-compress", {"vocab": 4, "length": 6, "compat": "mad"}, 3),
    ("mad-memorise", {}, 2),
    ("mad-memorise", {"vocab": 8, "length": 10, "map": 3}, 3),
)
