#!/usr/bin/env python3
"""python_specs.py COMMAND FILE -- write the module foci._specs: a function for each mechanism
and modifier that `COMMAND list --json` knows, which returns the text of a spec.  Arguments,
defaults and words come from there, and so does the docstring."""
import json
import keyword
import pprint
import subprocess
import sys

HEAD = '''"""A function for each mechanism and modifier; made by tools/python_specs.py from what the
library says of them."""

from __future__ import annotations

from typing import Any, Union

from ._spec import Modifier, Number, Spec, text

__all__ = {names}
'''


def safe(name):
    """A name that Python allows: global_ for global."""
    return name + "_" if keyword.iskeyword(name) else name


def kind(arg):
    """The type of an argument."""
    if "words" in arg or arg.get("mechanism"):
        return "Union[str, int]"
    if isinstance(arg.get("default"), str):
        return "Union[str, Number]"
    return "float" if arg["real"] else "int"


def default(arg):
    """Its default, as Python writes it; None: it must be given."""
    if arg.get("default") is None:
        return None
    if "words" in arg:
        return repr(arg["words"].split("|")[int(arg["default"])])
    if arg.get("mechanism"):
        return repr(arg["mechanism"])
    value = arg["default"]
    if isinstance(value, str):
        return repr(value)
    return repr(float(value) if arg["real"] else int(value))


def wrapped(text, indent, width=96):
    """Lines of a paragraph."""
    lines, line = [], ""
    for word in text.split():
        if line and len(indent) + len(line) + 1 + len(word) > width:
            lines.append(indent + line)
            line = word
        else:
            line = f"{line} {word}".strip()
    return lines + [indent + line]


def range_of(arg):
    """What an argument takes, in words."""
    if "words" in arg:
        return "one of " + ", ".join(arg["words"].split("|"))
    if arg.get("mechanism"):
        return "a mechanism"
    low, high = arg["min"], arg["max"]
    return f"{low} to {high}" if high is not None else f"from {low}"


def function(entry):
    """The source of one function."""
    name = safe(entry["name"])
    args = entry["arguments"]
    words = []
    for a in sorted(args, key=lambda a: default(a) is not None):
        value = default(a)
        words.append(f"{safe(a['name'])}: {kind(a)}" + (f" = {value}" if value is not None else ""))
    result = "Spec" if entry["kind"] == "mechanism" else "Modifier"
    summary = entry["summary"]
    lines = [f"def {name}({', '.join(words)}) -> {result}:",
             f'    """{summary[0].upper()}{summary[1:]}.', ""]
    for key in ("formula", "source", "cost"):
        if entry.get(key):
            lines += wrapped(f"{key.capitalize()}: {entry[key]}", "    ")
    if args:
        lines += ["", "    Arguments:"]
        for a in args:
            lines += wrapped(f"{safe(a['name'])} -- {a['help']} ({range_of(a)})", "        ")
    for key in ("tensors", "lists"):
        if entry.get(key):
            lines += ["", f"    {key.capitalize()}:"]
            for t in entry[key]:
                lines += wrapped(f"{t['name']} -- {t['help']}", "        ")
    lines.append('    """')
    given = "{" + ", ".join(f'"{a["name"]}": {safe(a["name"])}' for a in args) + "}"
    known = "{" + ", ".join(f'"{a["name"]}": {default(a)}' for a in args if default(a) is not None) + "}"
    lines.append(f'    return {result}(text("{entry["name"]}", {given}, {known}))')
    return "\n".join(line.replace("\\", "\\\\") for line in lines)


def main():
    command, path = sys.argv[1:]
    listed = json.loads(subprocess.run([command, "list", "--json"], check=True, stdout=subprocess.PIPE).stdout)
    entries = listed["mechanisms"] + listed["modifiers"]
    names = [safe(e["name"]) for e in entries]
    data = "ENTRIES: list[dict[str, Any]] = " + pprint.pformat(entries, width=110, sort_dicts=False)
    body = "\n\n\n".join([HEAD.format(names=json.dumps(names)).rstrip(), data, *map(function, entries)])
    with open(path, "w", encoding="utf-8") as out:
        out.write(body + "\n")


main()
