"""tasks.py -- examples of generated tasks, from their definitions (docs/data.md).

Each example is drawn from a stream of its own; what is drawn in which order is said there.
"""

import numpy as np

import tasks_recall
import tasks_sequence
from streams import GOLDEN, WORD, Stream, mix
from tasks_recall import mqar

SPLITS = ("train", "valid", "test")


class Draw(Stream):
    """The stream of example `index` of a split."""

    def __init__(self, seed, split, index):
        key = mix((seed + GOLDEN * (SPLITS.index(split) + 1)) & WORD)
        self.state = mix((key + GOLDEN * (index + 1)) & WORD)
        self.kept = None
        self.seed, self.index = seed, index

    def below(self, n):
        return min(int(self.uniform() * n), n - 1)


# Nested lists


def listops(draw, split, depth=10, arguments=10, least=501, most=1999):
    names = ["min", "max", "med", "sm"]

    class TooLong(Exception):
        pass

    def tree(level, room):
        """A digit, or [name, arguments]; room[0] is how many tokens there may still be."""
        room[1] = max(room[1], level)
        if level == depth or draw.uniform() > 0.25:
            digit = draw.below(10)
            take(room)
            return digit
        count = 2 + draw.below(arguments - 1)
        take(room)
        inner = [tree(level + 1, room) for _ in range(count)]
        name = names[draw.below(4)]
        take(room)
        return [name, inner]

    def take(room):
        if room[0] == 0:
            raise TooLong
        room[0] -= 1

    def tokens(t):
        if isinstance(t, int):
            return [1 + t]
        return [11 + names.index(t[0])] + [x for u in t[1] for x in tokens(u)] + [15]

    def value(t):
        if isinstance(t, int):
            return t
        values = [value(u) for u in t[1]]
        return int({"min": np.min, "max": np.max, "med": lambda v: np.floor(np.median(v)),
                    "sm": lambda v: np.sum(v) % 10}[t[0]](values))

    while True:
        room = [most, 0]
        try:
            t = tree(1, room)
        except TooLong:
            continue
        ids = tokens(t)
        if len(ids) >= least:
            return {"ids": ids, "answer": [value(t)], "slices": [len(ids), room[1]]}


# Sequences


def sequence(draw, split, backward, symbols=50, least=1, longest=25, test=30, form="pairs"):
    n = least + draw.below((test if split == "test" else longest) - least + 1)
    x = [5 + draw.below(symbols) for _ in range(n)]
    y = x[::-1] if backward else x
    bos, eos, mark, mask = 1, 2, 3, 4
    slices = lambda count: [n] * count + list(range(count))
    if form == "pairs":
        return {"source": x + [eos], "ids": [bos] + y, "labels": y + [eos], "slices": slices(n + 1)}
    if form == "row":
        return {"ids": x + [mark] + y, "labels": [-1] * n + y + [eos], "slices": slices(n + 1)}
    return {"ids": x + [mark] + [mask] * n, "labels": [-1] * (n + 1) + y, "slices": slices(n)}


# Numbers, spelled out


def english(n):
    small = ("zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen "
             "seventeen eighteen nineteen").split()
    tens = "twenty thirty forty fifty sixty seventy eighty ninety".split()
    if n < 20:
        return small[n]
    if n < 100:
        return tens[n // 10 - 2] + ("-" + small[n % 10] if n % 10 else "")
    for size, name in ((1000, " thousand"), (100, " hundred")):
        if n >= size:
            return english(n // size) + name + (" " + english(n % size) if n % size else "")


def german(n, one="eins"):
    small = ["null", one] + ("zwei drei vier fünf sechs sieben acht neun zehn elf zwölf dreizehn vierzehn fünfzehn "
                             "sechzehn siebzehn achtzehn neunzehn").split()
    tens = "zwanzig dreißig vierzig fünfzig sechzig siebzig achtzig neunzig".split()
    if n < 20:
        return small[n]
    if n < 100:
        return (german(n % 10, "ein") + "und" if n % 10 else "") + tens[n // 10 - 2]
    for size, name in ((1000, "tausend"), (100, "hundert")):
        if n >= size:
            return german(n // size, "ein") + name + (german(n % size, one) if n % size else "")


def vietnamese(n):
    digits = "không một hai ba bốn năm sáu bảy tám chín".split()

    def below_hundred(m, hundreds):
        ten, one = divmod(m, 10)
        if m == 0:
            return ""
        if ten == 0:
            return (" linh " if hundreds else " ") + digits[one]
        ones = {0: "", 1: " mốt" if ten > 1 else " một", 4: " tư" if ten > 1 else " bốn", 5: " lăm"}
        return (" mười" if ten == 1 else " " + digits[ten] + " mươi") + ones.get(one, " " + digits[one])

    def group(m, full):
        said = m >= 100 or full
        return (" " + digits[m // 100] + " trăm" if said else "") + below_hundred(m % 100, said)

    if n == 0:
        return digits[0]
    high, low = divmod(n, 1000)
    text = (group(high, False) + " nghìn" if high else "") + (group(low, high > 0) if low else "")
    return text.strip()


def numbers(draw, split, to="de", digits=6, tokens="parts"):
    while True:
        count = 1 + draw.below(digits)
        n = draw.below(10) if count == 1 else 10 ** (count - 1) + draw.below(9 * 10 ** (count - 1))
        share = mix((n + GOLDEN) & WORD) % 10
        if (share == 0, share == 1, share > 1) == tuple(split == s for s in ("test", "valid", "train")):
            break
    found = {"source_text": english(n), "text": (german if to == "de" else vietnamese)(n)}
    if tokens == "chars":
        # Words of numbers up to 999,999 are those of numbers up to 2,000.
        for side, name, spell in ((0, "ids", german if to == "de" else vietnamese), (1, "source", english)):
            chars = sorted(set("".join(spell(m) for m in range(2001))))
            code = [3 + chars.index(c) for c in found["source_text" if side else "text"]]
            found[name] = code + [2] if side else [1] + code
        found["labels"] = found["ids"][1:] + [2]
        found["slices"] = [count] * len(found["labels"]) + list(range(len(found["labels"])))
    return found


GENERATORS = {
    **tasks_recall.GENERATORS,
    "listops": listops, "numbers": numbers,
    "copy": lambda draw, split, **args: sequence(draw, split, False, **args),
    "reverse": lambda draw, split, **args: sequence(draw, split, True, **args),
    **tasks_sequence.GENERATORS,
}

CASES = (  # name, arguments, examples
    ("mqar", {}, 2),
    ("mqar", {"vocab": 16, "length": 20, "pairs": 5, "power": 0.5}, 3),
    ("mqar", {"vocab": 40, "length": 24, "pairs": 3, "filler": "noise", "gap": "uniform"}, 3),
    ("mqar", {"vocab": 9, "length": 13, "pairs": 3, "filler": "noise", "compat": "zoology"}, 3),
    ("listops", {}, 1),
    ("listops", {"depth": 6, "arguments": 6, "least": 16, "most": 199}, 4),
    ("listops", {"depth": 3, "arguments": 3, "least": 1, "most": 9}, 6),
    ("numbers", {}, 6),
    ("numbers", {"to": "vi"}, 6),
    ("numbers", {"to": "vi", "digits": 4, "tokens": "chars"}, 3),
    ("numbers", {"digits": 2, "tokens": "chars"}, 3),
    ("copy", {}, 2),
    ("copy", {"symbols": 3, "least": 2, "longest": 4, "test": 6, "form": "row"}, 3),
    ("reverse", {}, 2),
    ("reverse", {"longest": 5, "form": "masked"}, 2),
    ("reverse", {"symbols": 9, "longest": 5, "form": "row"}, 2),
    *tasks_recall.CASES,
    *tasks_sequence.CASES,
)


def text():
    """All cases; seeds differ from case to case."""
    lines = []
    for seed, (name, args, count) in enumerate(CASES):
        said = ", ".join("%s=%s" % item for item in args.items())
        for split in SPLITS:
            for index in list(range(count - 1)) + [1 << 40]:
                found = GENERATORS[name](Draw(seed, split, index), split, **args)
                lines.append("task %s(%s)" % (name, said) if args else "task " + name)
                lines.append("example %d %d %d" % (seed, SPLITS.index(split), index))
                for key, value in found.items():
                    lines.append(key + " " + (value if isinstance(value, str) else " ".join(str(int(v)) for v in value)))
                lines.append("end")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    # The same number in another way, and the questions of mqar as numpy.random.choice() draws them.
    assert english(99014) == "ninety-nine thousand fourteen" and german(21101) == "einundzwanzigtausendeinhunderteins"
    assert vietnamese(1005) == "một nghìn không trăm linh năm" and vietnamese(21) == "hai mươi mốt"
    rng, weights = np.random.default_rng(0), np.arange(1, 29) ** (0.01 - 1)
    theirs = np.array([rng.choice(28, size=4, replace=False, p=weights / weights.sum()) for _ in range(4000)])
    ours = np.array([(np.flatnonzero(e["labels"] >= 0)[np.argsort(np.argsort(
        [list(e["ids"][:8:2]).index(k) for k in e["ids"][e["labels"] >= 0]]))] - 8) // 2
        for e in (mqar(Draw(1, "train", i), "train") for i in range(4000))])
    counts = lambda x: np.bincount(np.asarray(x).ravel(), minlength=28)
    a, b = counts(theirs), counts(ours)
    chi = float(np.sum((a - b) ** 2 / np.maximum(a + b, 1)))
    print("chi-square of the places of questions, 27 degrees of freedom: %.1f" % chi)
    assert chi < 58
