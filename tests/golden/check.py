"""check.py -- make the golden vectors anew, and see that the files beside this script are those.

Words must be the same, numbers as near as functions of other processors and other
versions of NumPy come.
"""

import itertools
import os
import sys
import tempfile

import make

NEAR = 1e-12


def differs(old, new):
    """Do two words stand for different things?"""
    if old == new:
        return False
    try:
        x, y = float(old), float(new)
    except ValueError:
        return True
    return not abs(x - y) <= NEAR * max(1.0, abs(x))


def first_difference(old, new):
    """Of two texts: a sentence, or None."""
    case = ""
    for at, (a, b) in enumerate(itertools.zip_longest(old.splitlines(), new.splitlines(), fillvalue=""), 1):
        case = b if b.startswith("case ") else case
        x, y = a.split(" "), b.split(" ")
        if len(x) != len(y):
            return "line %d (%s): %d words '%.20s...' for %d words '%.20s...'" % (at, case, len(x), a, len(y), b)
        for u, v in zip(x, y):
            if differs(u, v):
                return "line %d (%s), %s: '%s' for '%s'" % (at, case, y[0], u, v)
    return None


def texts(directory):
    """{name: text} of the files of vectors."""
    found = {}
    for name in sorted(os.listdir(directory)):
        if name.endswith(".txt"):
            with open(os.path.join(directory, name), encoding="utf-8") as f:
                found[name] = f.read()
    return found


def main():
    with tempfile.TemporaryDirectory() as directory:
        make.main(directory)
        new = texts(directory)
    old, bad = texts(make.HERE), []
    for name in sorted(old.keys() | new.keys()):
        if name not in old or name not in new:
            bad.append("%s: %s" % (name, "is not made by make.py" if name in old else "is missing"))
            continue
        found = first_difference(old[name], new[name])
        bad += ["%s: %s" % (name, found)] if found else []
    for text in bad:
        print("check.py: " + text)
    if bad:
        print("check.py: 'tools/python tests/golden/make.py' writes the files anew")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
