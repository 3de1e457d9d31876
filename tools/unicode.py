#!/usr/bin/env python3
"""unicode.py [check] -- src/text/unicode.def: letters, numbers and white space.

The regular expression of GPT-2 asks for three classes of characters: \\p{L}, \\p{N} and
\\s.  The file lists where the class changes, one entry for each change, 4 * code point +
class.  It is made with the Unicode data of the package unicodedata2 if there is one
(`pip install unicodedata2==16.0.0` for the version in the file), else with that of Python.

`check` makes it anew and compares.  A Python of an older version of Unicode than that of
the file knows fewer characters: then what it knows has to agree.
"""
import pathlib
import re
import sys

try:
    import unicodedata2 as unicodedata
except ImportError:
    import unicodedata

PATH = pathlib.Path(__file__).resolve().parent.parent / "src/text/unicode.def"
OTHER, LETTER, NUMBER, SPACE = range(4)
WHITE = {0x9, 0xA, 0xB, 0xC, 0xD, 0x85}


def class_of(c):
    category = unicodedata.category(chr(c))
    if category[0] == "Z" or c in WHITE:
        return SPACE
    return {"L": LETTER, "N": NUMBER}.get(category[0], OTHER)


def changes():
    last, out = None, []
    for c in range(0x110000):
        kind = class_of(c)
        if kind != last:
            out.append(4 * c + kind)
        last = kind
    return out


def text():
    entries = ["0x%x," % x for x in changes()]
    lines = ["/* unicode.def -- where the class of characters changes, in Unicode %s: 4 * code point +"
             % unicodedata.unidata_version,
             " * class, see enum char_class.  Made by tools/unicode.py. */"]
    lines += [" ".join(entries[i:i + 9]) for i in range(0, len(entries), 9)]
    return "\n".join(lines) + "\n"


def check():
    old = PATH.read_text()
    if old == text():
        return
    version = re.search(r"Unicode (\d+)\.", old)[1]
    if int(version) <= int(unicodedata.unidata_version.split(".")[0]):
        sys.exit("%s is not what tools/unicode.py makes" % PATH.name)
    entries = [int(x, 16) for x in re.findall(r"0x([0-9a-f]+),", old)]
    at = -1
    for c in range(0x110000):
        if at + 1 < len(entries) and entries[at + 1] >> 2 == c:
            at += 1
        if unicodedata.category(chr(c)) != "Cn" and entries[at] & 3 != class_of(c):
            sys.exit("%s: U+%04X has class %d, Unicode %s says %d" % (
                PATH.name, c, entries[at] & 3, unicodedata.unidata_version, class_of(c)))


if sys.argv[1:] == ["check"]:
    check()
else:
    PATH.write_text(text())
