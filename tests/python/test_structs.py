"""The structs and functions of foci._c are those of the headers."""
import ctypes
import os
import re
import shutil
import subprocess

import pytest
from conftest import ROOT

from foci import _c

STRUCTS = {name: kind for name, kind in vars(_c).items() if name.startswith("foci_")}
LETTERS = {"int64_t": "l", "size_t": "z", "uint64_t": "u", "double": "d", "int": "i", "int32_t": "i", "unsigned": "i",
           "foci_dtype": "i", "foci_special": "i", "foci_status": "s", "void": "v"}


def test_structs(tmp_path):
    compiler = shutil.which(os.environ.get("CC", "cc")) or shutil.which("gcc") or shutil.which("clang")
    if not compiler:
        pytest.skip("no C compiler here")
    lines = []
    for name, kind in STRUCTS.items():
        lines.append(f'printf("{name} %zu\\n", sizeof({name}));')
        for field, *_ in kind._fields_:
            lines.append(f'printf("{name}.{field} %zu %zu\\n", offsetof({name}, {field}), '
                         f"sizeof((({name} *)0)->{field}));")
    source = "#include <stdio.h>\n#include <stddef.h>\n"
    source += "".join(f'#include "foci/{h.name}"\n' for h in sorted((ROOT / "include/foci").glob("*.h")))
    source += "int main(void)\n{\n" + "\n".join(lines) + "\n}\n"
    (tmp_path / "structs.c").write_text(source)
    subprocess.run([compiler, "-std=c11", "-I", ROOT / "include", tmp_path / "structs.c", "-o", tmp_path / "structs"],
                   check=True)
    said = subprocess.run([tmp_path / "structs"], check=True, stdout=subprocess.PIPE, text=True).stdout
    for line in said.splitlines():
        place, *numbers = line.split()
        name, _, field = place.partition(".")
        if field:
            at = getattr(STRUCTS[name], field)
            assert [at.offset, at.size] == [int(n) for n in numbers], place
        else:
            assert ctypes.sizeof(STRUCTS[name]) == int(numbers[0]), place


def letter(declared):
    """The letter of a parameter or result."""
    if "*" in declared or "[" in declared or re.search(r"_fn\b", declared):
        return "p"
    word = next((w for w in declared.split() if w in LETTERS), None)
    return LETTERS[word] if word else f"?{declared}"


def test_signatures():
    text = "\n".join(path.read_text() for path in sorted((ROOT / "include/foci").glob("*.h")))
    text = re.sub(r"/\*.*?\*/", " ", text, flags=re.S)
    declared = {}
    for result, name, arguments in re.findall(r"FOCI_API\s+([\w\s*]+?)\s*\*?\s*(foci_\w+)\(([^;]*?)\);", text):
        whole = re.search(rf"FOCI_API\s+([\w\s]+?\**)\s*{name}\(", text)[1]
        words = [] if arguments.strip() == "void" else arguments.split(",")
        declared[name] = letter(whole) + "".join(letter(word) for word in words)
    for name, signature in _c.SIGNATURES.items():
        have = signature.replace(" ", "").replace("c", "p")
        assert have == declared[name], name


def test_constants():
    text = (ROOT / "include/foci/foci.h").read_text()
    for name in ("CAUSAL", "TRAIN", "FAST", "MASK", "BIAS", "MEMORY_GRADS"):
        assert getattr(_c, name) == 1 << int(re.search(rf"FOCI_FLAG_{name} = 1 << (\d)", text)[1])
    statuses = re.findall(r"FOCI_ERR_\w+ = (-\d)", text)
    assert sorted(int(s) for s in statuses) == sorted(_c.CLASSES)
