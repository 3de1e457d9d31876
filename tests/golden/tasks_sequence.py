"""tasks_sequence.py -- copying, looking up and following in one sequence, from their definitions (docs/data.md).

`draw` is the stream of an example (tasks.py).
"""

import itertools

import numpy as np


def distinct(draw, count, below):
    """So many different integers, in the order in which they come."""
    found = {}
    while len(found) < count:
        found.setdefault(draw.below(below))
    return list(found)


def labelled(length, ids, labels, *slices):
    """`labels` is {place: label}, a slice {place: what it is reported by}."""
    row = np.full(length, -1)
    row[list(labels)] = list(labels.values())
    return {"ids": ids, "labels": row, "slices": [s[at] for s in slices for at in sorted(labels)]}


def selcopy(draw, split, vocab=16, length=256, tokens=16):
    places = sorted(distinct(draw, tokens, length))
    text = np.zeros(length, int)
    text[places] = [1 + draw.below(vocab - 2) for _ in places]
    marks = range(length, length + tokens)
    return labelled(length + tokens, np.append(text, [vocab - 1] * tokens), dict(zip(marks, text[places])),
                    dict(zip(marks, range(tokens))), {m: m - p for m, p in zip(marks, places)})


def induction(draw, split, vocab=16, length=256, test=256):
    n = test if split == "test" else length
    place = draw.below(n - 2)
    others = [1 + draw.below(vocab - 1) for _ in range(n - 2)]
    ids = others[:place] + [vocab] + others[place:] + [vocab]
    return labelled(n, ids, {n - 1: ids[place + 1]}, {n - 1: n}, {n - 1: n - 1 - place})


def ngram(draw, split, n=3, symbols=4, length=256):
    cuts = {c: [draw.uniform() for _ in range(symbols - 1)]
            for c in itertools.product(range(symbols), repeat=n - 1)}
    text = [draw.below(symbols) for _ in range(n - 1)]
    while len(text) <= length:
        table = np.sort(cuts[tuple(text[1 - n:])])
        text.append(int(np.searchsorted(table, draw.uniform())))
    contexts = [tuple(text[i:i + n - 1]) for i in range(length - n + 2)]
    at = range(n - 2, length)
    return labelled(length, [1 + x for x in text[:-1]], {i: 1 + text[i + 1] for i in at}, {i: i for i in at},
                    {i: contexts[:j].count(contexts[j]) for j, i in enumerate(at)})


def phonebook(draw, split, entries=16, letters=3, digits=4):
    book = {}
    while len(book) < entries:
        name = "".join(chr(ord("a") + draw.below(26)) for _ in range(letters))
        if name not in book:
            book[name] = "".join(str(draw.below(10)) for _ in range(digits))
    asked = draw.below(entries)
    name, number = list(book.items())[asked]
    front = "".join(a + ":" + b + ";" for a, b in book.items()) + name + ":"
    code = {c: 1 + i for i, c in enumerate("0123456789abcdefghijklmnopqrstuvwxyz:;")}
    at = range(len(front) - 1, len(front) + digits - 1)
    found = labelled(len(front) + digits - 1, [code[c] for c in front + number[:-1]],
                     {i: code[d] for i, d in zip(at, number)}, dict(zip(at, range(digits))),
                     {i: (entries - asked) * (letters + digits + 2) for i in at})
    found["text"] = " ".join(front + number[:-1])
    return found


def hay(draw, length, width, groups, each, words):
    """Words from 0 on, -1 in their place where statements stand, and for each group where its statements begin."""
    slots = distinct(draw, groups * each, length - groups * each * (width - 1))
    row = {s: i // each for i, s in enumerate(slots)}
    ids, begin = [], [[] for _ in range(groups)]
    for s in range(length - groups * each * (width - 1)):
        if s in row:
            begin[row[s]].append(len(ids))
            ids += [-1] * width
        else:
            ids.append(draw.below(words))
    return ids, begin


def needle(draw, split, keys=1, values=1, queries=1, length=256, words=64, symbols=64):
    text, begin = hay(draw, length, 2, keys, values, words)
    names, told, text = [], [], ["w%d" % w for w in text]
    for places in begin:
        names.append(fresh(draw, symbols, names))
        for p in places:
            told.append(fresh(draw, symbols, told))
            text[p:p + 2] = ["k%d" % names[-1], "v%d" % told[-1]]
    labels, place, distance = {}, {}, {}
    for g in distinct(draw, queries, keys):
        text += ["?", "k%d" % names[g]]
        for k, p in enumerate(begin[g]):
            at = len(text) - 1
            labels[at], place[at], distance[at] = "v%d" % told[g * values + k], len(labels), at - p
            text.append(labels[at])
    code = {"w": 2, "k": 2 + words, "v": 2 + words + symbols}
    number = lambda t: 1 if t == "?" else code[t[0]] + int(t[1:])
    found = labelled(len(text) - 1, [number(t) for t in text[:-1]], {i: number(t) for i, t in labels.items()}, place,
                     distance)
    found["text"] = " ".join(text[:-1])
    return found


def fresh(draw, below, used):
    while True:
        found = draw.below(below)
        if found not in used:
            return found


def vartrack(draw, split, hops=4, chains=4, length=256, words=64, symbols=64, ask="variables"):
    text, begin = hay(draw, length, 3, chains, hops + 1, words)
    used, values, text = [], [], ["w%d" % w for w in text]
    for places in begin:
        values.append(fresh(draw, symbols, values))
        right = "v%d" % values[-1]
        for p in places:
            used.append(fresh(draw, symbols, used))
            left = "x%d" % used[-1]
            text[p:p + 3] = [left, "=", right]
            right = left
    chain = ["x%d" % x for x in used[:hops + 1]]
    if ask == "value":
        text += ["?", chain[-1]]
        labels, hop, found_at = ["v%d" % values[0]], [hops], [begin[0][0] + 2]
    else:
        text += ["?", "v%d" % values[0]] + chain[:-1]
        labels, hop, found_at = chain, list(range(hops + 1)), begin[0]
    at = range(length + 1, length + 1 + len(labels))
    code = {"w": 3, "x": 3 + words, "v": 3 + words + symbols}
    number = lambda t: "=?".index(t) + 1 if t in "=?" else code[t[0]] + int(t[1:])
    found = labelled(len(text), [number(t) for t in text], {i: number(t) for i, t in zip(at, labels)}, dict(zip(at, hop)),
                     {i: i - p for i, p in zip(at, found_at)})
    found["text"] = " ".join(text)
    return found


GENERATORS = {"selcopy": selcopy, "induction": induction, "ngram": ngram, "phonebook": phonebook, "needle": needle,
              "vartrack": vartrack}

CASES = (  # name, arguments, examples
    ("selcopy", {}, 1),
    ("selcopy", {"vocab": 5, "length": 9, "tokens": 8}, 3),
    ("induction", {}, 1),
    ("induction", {"vocab": 4, "length": 6, "test": 9}, 3),
    ("ngram", {}, 1),
    ("ngram", {"n": 2, "symbols": 7, "length": 40}, 2),
    ("ngram", {"n": 4, "symbols": 2, "length": 20}, 3),
    ("phonebook", {}, 1),
    ("phonebook", {"entries": 13, "letters": 1, "digits": 1}, 3),
    ("needle", {}, 1),
    ("needle", {"keys": 4, "values": 2, "queries": 3, "length": 20, "words": 5, "symbols": 9}, 3),
    ("vartrack", {}, 1),
    ("vartrack", {"hops": 2, "chains": 3, "length": 30, "words": 3, "symbols": 9}, 3),
    ("vartrack", {"hops": 3, "chains": 2, "length": 24, "words": 1, "symbols": 8, "ask": "value"}, 3),
)
