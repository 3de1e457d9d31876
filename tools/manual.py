#!/usr/bin/env python3
"""manual.py html|man -- the API manual, made from the public headers.

`html` prints one page that needs nothing else, `man` the page foci(3).

    manual.py pages DIR

writes a page for each function to DIR, foci_forward.3 and so on: functions that share a
comment share a page.

    manual.py check LIBRARY

fails where a public declaration has no comment, or something declared or exported is
missing in the manual.

What it relies on: declarations begin at the start of a line.  A comment belongs to the
declarations right below it, up to the next blank line or comment; one that opens with
an empty line is a heading, with text below it.  The comment at the top of a header says
what the header is for.
"""
import html
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
INCLUDE = ROOT / "include/foci"
VERSION = ".".join(re.findall(r"#define FOCI_VERSION_[A-Z]+ +(\d+)", (INCLUDE / "foci.h").read_text()))
HEADERS = sorted((path.name for path in INCLUDE.glob("*.h")),
                 key=lambda name: (name != "foci.h", name))


class Item:
    """A comment and the declarations it is about."""

    def __init__(self, text):
        self.text = text  # lines without comment marks
        self.code = []  # declarations
        self.heading = None

    def functions(self):
        """Names of those that are exported."""
        return [n for code in self.code for n in names(code)
                if "(" in code and not code.startswith(
                    ("static inline", "typedef", "struct", "#", "enum"))]


def comment_lines(comment):
    lines = re.sub(r"^/\*|\*/$", "", comment).split("\n")
    return [re.sub(r"^ \* ?", "", line).rstrip() if n else line.strip()
            for n, line in enumerate(lines)]


def declaration(text, start):
    """The end of what starts there: a semicolon, or a body, outside of braces; or a
    macro, to the end of its line."""
    if text[start] == "#":
        return re.compile(r"(?<!\\)\n").search(text, start).start()
    depth = 0
    for m in re.compile(r"/\*.*?\*/|[{};]", re.S).finditer(text, start):
        if m[0] == "{":
            depth += 1
        elif m[0] == "}":
            depth -= 1
            if depth == 0 and text.startswith("static inline", start):
                return m.end()
        elif m[0] == ";" and depth == 0:
            return m.end()
    raise SystemExit(f"manual: no end of: {text[start:start + 60]}")


def shown(code):
    """What a reader needs of it: no body, no mark of visibility."""
    if code.startswith("static inline"):
        code = code.split("\n{")[0] + ";"
    code = code.replace("FOCI_API ", "")
    lines = code.split("\n")
    if "(" in lines[0] and len(lines) > 1 and "{" not in code:  # align the arguments again
        at = lines[0].rindex("(") + 1
        lines = lines[:1] + [" " * at + line.strip() for line in lines[1:]]
    return re.sub(r"^((?:const )?[\w]+) {2,}", r"\1 ", "\n".join(lines))


def parse(path):
    """The items of a header, in order; the first has its opening comment only."""
    text = re.sub(r"#ifdef __cplusplus\n.*?#endif\n", "", path.read_text(), flags=re.S)
    text = re.sub(r"#if defined\(__GNUC__\)\n.*?#endif\n", "", text, flags=re.S)
    items, at, current = [], 0, None
    while at < len(text):
        if text[at] == "\n":
            current, at = None, at + 1
        elif text.startswith("/*", at):
            end = text.index("*/", at) + 2
            lines = comment_lines(text[at:end])
            current = Item(lines)
            if items and not lines[0]:  # a heading, its text after a colon or a line
                body = "\n".join(lines).strip().split("\n\n", 1)
                current.heading = re.match(r"[^:\n]*", body[0])[0]
                if ":" in body[0]:
                    body[0] = body[0].split(":", 1)[1].strip()
                    body[0] = body[0][:1].upper() + body[0][1:]
                else:
                    body = body[1:]
                current.text = "\n\n".join(body).split("\n")
            items.append(current)
            at = end + 1
        elif re.compile(r"#(?!define FOCI_\w+[( ])").match(text, at):
            at = text.index("\n", at) + 1
        else:
            end = declaration(text, at)
            note = re.compile(r" */\*.*?\*/", re.S).match(text, end)
            if current is None or current.heading:
                current = Item([])
                items.append(current)
            code = shown(text[at:end])
            current.code.append(code + ("  " + note[0].strip() if note else ""))
            at = (note.end() if note else end) + 1
    return items


def names(code):
    """What a declaration makes known, macros and enumerators included."""
    code = re.sub(r"/\*.*?\*/", "", code, flags=re.S)
    if code.startswith("#define"):
        return [re.match(r"#define (\w+)", code)[1]]
    found = []
    pointer = re.match(r"typedef [^({]*\(\*(\w+)\)", code)
    if pointer:
        found.append(pointer[1])
    elif code.startswith("typedef"):
        found.append(re.search(r"(\w+);$", code)[1])
    elif code.startswith("struct"):
        found.append(re.match(r"struct (\w+)", code)[1])
    elif "(" in code and not code.startswith("enum"):
        found.append(re.search(r"(\w+)\(", code)[1])
    if "enum" in code.split("{")[0]:
        found += re.findall(r"\b(FOCI_\w+)\b(?= *[=,}\n])", code)
    return found


def is_documented(item, code):
    return any(item.text) or "/*" in code


def manual():
    return [(name, parse(INCLUDE / name)) for name in HEADERS]


def check(library):
    headers = manual()
    known, wrong = set(), []
    for header, items in headers:
        for item in items:
            for code in item.code:
                known.update(names(code))
                if not is_documented(item, code):
                    wrong.append(f"{header}: no comment: {code.splitlines()[0]}")
    # What must be there, found in two other ways.
    symbols = subprocess.run(["nm", "-D", "--defined-only", library], check=True,
                             stdout=subprocess.PIPE, text=True).stdout
    exported = set(re.findall(r" T (foci_\w+)$", symbols, re.M))
    declared = set()
    for name in HEADERS:
        text = re.sub(r"/\*.*?\*/", "", (INCLUDE / name).read_text(), flags=re.S)
        declared.update(re.findall(r"\b(foci_\w+|FOCI_[A-Z]\w+)\b", text))
    private = {"FOCI_API"} | {n for n in declared if n.endswith("_H")}
    for name in sorted((exported | declared) - private - known):
        wrong.append(f"{name} is not in the manual")
    pages = to_html(), to_man()
    by_function = function_pages()
    for name in sorted(known):
        if f'id="{name}"' not in pages[0] or not re.search(rf"\b{name}\b", pages[1]):
            wrong.append(f"{name} is lost in the manual")
    functions = {n for _, items in headers for item in items for n in item.functions()}
    for name in sorted(functions - by_function.keys()):
        wrong.append(f"{name} has no page")
    for name in sorted(functions - exported):
        wrong.append(f"{name} is declared, but not exported")
    print("\n".join(wrong) or f"{len(known)} names, {len(functions)} functions")
    return bool(wrong)


#
# Text as blocks: paragraphs, and lines that are indented and stay as they are.
#

def blocks(lines):
    block, fixed = [], False
    for line in lines + [""]:
        indented = line.startswith("    ")
        if block and (not line and not fixed or line and indented != fixed):
            yield fixed, block
            block = []
        if line or (block and fixed):
            if not block:
                fixed = indented
            block.append(line)
    if block:
        yield fixed, block


#
# HTML
#

STYLE = """body { font: 16px/1.5 sans-serif; max-width: 54em; margin: 2em auto;
padding: 0 1em; color: #222; background: #fff }
pre { background: #f5f5f2; padding: .6em .8em; overflow-x: auto; font-size: 14px }
code, pre { font-family: monospace } a { color: #1a5a96; text-decoration: none }
nav { columns: 3; font-size: 14px } nav a { display: block }
.item { margin: 1.6em 0 } .item p { margin: .4em 0 }
@media (prefers-color-scheme: dark) { body { background: #1b1b1b; color: #ddd }
pre { background: #262626 } a { color: #8ab8e6 } }"""


def linked(text, known):
    text = html.escape(text, quote=False)
    text = re.sub(r"`([^`\n]+)`", r"<code>\1</code>", text)
    return re.sub(r"\b(foci_\w+|FOCI_\w+)\b",
                  lambda m: f'<a href="#{m[1]}">{m[1]}</a>' if m[1] in known else m[1],
                  text)


def html_text(lines, known):
    for fixed, block in blocks(lines):
        text = "\n".join(line[4:] if fixed else line for line in block).rstrip()
        yield f"<{'pre' if fixed else 'p'}>{linked(text, known)}</{'pre' if fixed else 'p'}>"


def to_html():
    headers = manual()
    known = {n for _, items in headers for i in items for c in i.code for n in names(c)}
    body, nav, seen = [], [], set()
    for header, items in headers:
        body.append(f'<h1 id="{header}">foci/{header}</h1>')
        nav.append(f'<a href="#{header}"><b>{header}</b></a>')
        for item in items:
            if item.heading:
                body.append(f"<h2>{html.escape(item.heading)}</h2>")
            body.append('<div class="item">')
            if item.code:
                found = [n for code in item.code for n in names(code) if n not in seen]
                seen.update(found)
                anchors = "".join(f'<a id="{n}"></a>' for n in found)
                nav += [f'<a href="#{n}">{n}</a>' for n in found if n.islower()]
                code = "\n".join(linked(c, known) for c in item.code)
                body.append(f"{anchors}<pre>{code}</pre>")
            body += html_text(item.text, known)
            body.append("</div>")
    return "\n".join(["<!DOCTYPE html>", '<html lang="en"><head><meta charset="utf-8">',
                      '<meta name="viewport" content="width=device-width">',
                      f"<title>foci {VERSION}: the C interface</title>",
                      f"<style>{STYLE}</style></head><body>",
                      f"<p>foci {VERSION}: the C interface</p>",
                      f"<nav>{''.join(nav)}</nav>", *body, "</body></html>"])


#
# man(7)
#

def roff(text, copied=False):
    text = text.replace("\\", "\\e")
    if copied:
        text = text.replace("-", "\\-").replace("'", "\\(aq").replace("`", "\\(ga")
    return re.sub(r"^(?=[.'])", r"\\&", text, flags=re.M)


def man_text(lines):
    for fixed, block in blocks(lines):
        text = "\n".join(block).rstrip()
        if fixed:
            yield f".PP\n.nf\n{roff(text, True)}\n.fi"
        else:
            text = re.sub(r"`([^`\n]+)`", r"\1", roff(text))
            yield ".PP\n" + text.replace("  ", " ")


def to_man():
    out = [f'.TH FOCI 3 "" "foci {VERSION}" "Library Functions"',
           ".SH NAME\nfoci \\- efficient attention for C programs", ".SH SYNOPSIS\n.nf"]
    out += [f".B #include <foci/{name}>" for name in HEADERS]
    out.append(".PP\ncc program.c $(pkg\\-config \\-\\-cflags \\-\\-libs foci)\n.fi")
    for header, items in manual():
        out.append(f".SH {header.upper()}")
        for item in items:
            if item.heading:
                out.append(f".SS {roff(item.heading)}")
            if item.code:
                out.append(".PP\n.nf\n" + roff("\n".join(item.code), True) + "\n.fi")
                out.append(".RS 4")
            out += man_text(item.text)
            if item.code:
                out.append(".RE")
    out.append(".SH SEE ALSO\n.BR foci (1)")
    text = "\n".join(out) + "\n"
    text = re.sub(r"(?m)^(\.(?:S[HS] .*|RS 4))\n\.PP\n", r"\1\n", text)  # none follows these
    return re.sub(r"(?m)^\.RS 4\n\.RE\n", "", text)


def function_pages():
    """name: text, of each function."""
    headers = manual()
    structs = {n: code for _, items in headers for item in items for code in item.code
               for n in names(code)[:1] if code.startswith("typedef struct") and "{" in code}
    pages = {}
    for header, items in headers:
        for item in items:
            of = item.functions()
            if not of:
                continue
            words = re.sub(r"`([^`\n]+)`", r"\1", " ".join(line.strip() for line in item.text))
            first = re.split(r"(?<=[.;:])\s", words.strip())[0].rstrip(".;:") or of[0]
            code = "\n".join(item.code)
            used = [structs[n] for n in dict.fromkeys(re.findall(r"\bfoci_\w+\b", code))
                    if n in structs and n not in of]
            out = [f'.TH {of[0].upper()} 3 "" "foci {VERSION}" "Library Functions"', ".SH NAME",
                   f"{', '.join(of)} \\- {roff(first)}", ".SH SYNOPSIS\n.nf",
                   f".B #include <foci/{header}>", "",
                   roff("\n\n".join([code] + used), True), ".fi"]
            if any(item.text):
                out += [".SH DESCRIPTION", *man_text(item.text)]
            out.append(".SH SEE ALSO\n.BR foci (3)")
            text = re.sub(r"(?m)^(\.SH .*)\n\.PP\n", r"\1\n", "\n".join(out) + "\n")
            pages[of[0]] = text
            for other in of[1:]:
                pages[other] = f".so man3/{of[0]}.3\n"
    return pages


def main():
    if len(sys.argv) == 3 and sys.argv[1] == "pages":
        folder = pathlib.Path(sys.argv[2])
        folder.mkdir(parents=True, exist_ok=True)
        for name, page in function_pages().items():
            (folder / f"{name}.3").write_text(page, encoding="utf-8")
        return
    if sys.argv[1:] == ["html"]:
        text = to_html()
    elif sys.argv[1:] == ["man"]:
        text = to_man()
    elif len(sys.argv) == 3 and sys.argv[1] == "check":
        sys.exit(check(sys.argv[2]))
    else:
        sys.exit(__doc__)
    sys.stdout.reconfigure(encoding="utf-8")
    print(text, end="")


main()
