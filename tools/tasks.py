#!/usr/bin/env python3
"""tasks.py FOCI DIR [NAME...] -- a picture of one example of each generated task, in
DIR/NAME.svg, from what `FOCI task NAME --json` prints alone: a box for every token.  Where
something is asked the box has a frame and the label stands below it; what stood in the
sequence before has a colour if it is what is asked about, or an answer."""
import json
import pathlib
import subprocess
import sys
from xml.sax.saxutils import escape

WIDTH, LEFT, BOX, PITCH, CHAR = 760, 14, 22, 44, 7.3
ROWS = 4  # at most; what is too long is cut in its middle
COLOURS = {"other": ("#eef1f5", "#697586"), "key": ("#cfe1f7", "#1f4f86"),
           "answer": ("#cdeed6", "#1d6b35"), "question": ("#ffe3c2", "#8a4b08"),
           "gap": ("#ffffff", "#697586")}
LEGEND = (("question", "asked here, the label below"), ("key", "what is asked about"),
          ("answer", "an answer"))


def run(*words):
    return json.loads(subprocess.run(words, check=True, capture_output=True,
                                     encoding="utf-8").stdout)


class Box:
    def __init__(self, text, role="other", label=None):
        self.text, self.role, self.label = text, role, label
        self.width = max(22, CHAR * max(len(text), len(label or "")) + 10)


def sequence(text, labels):
    """Boxes of tokens that have labels at some places.  An answer is the label where it
    followed the token that asks, or wherever it stood if it never did, or if all questions
    are the same token."""
    tokens = text.split()
    wanted = dict((int(at), label) for at, label in
                  (word.split("=", 1) for word in labels.split()))
    alike = len({tokens[i] for i in wanted}) == 1 < len(wanted)
    roles = {}
    for i, label in wanted.items():
        places = [j for j in range(i) if tokens[j] == label and j not in wanted]
        after = [j for j in places if j and tokens[j - 1] == tokens[i] and not alike]
        for j in after or places:
            roles[j] = "answer"
        for j in after:
            roles.setdefault(j - 1, "key")
    roles.update((i, "question") for i in wanted)
    return [Box(token, roles.get(i, "other"), wanted.get(i))
            for i, token in enumerate(tokens)]


def shorten(boxes):
    """Runs of one token that is not asked, with their length."""
    found, i = [], 0
    while i < len(boxes):
        j = i
        while j < len(boxes) and boxes[j].text == boxes[i].text and \
                boxes[j].label is None and boxes[i].label is None:
            j += 1
        if j - i > 3:
            found += [Box(boxes[i].text, boxes[i].role), Box(f"\u00d7{j - i}", "gap")]
            i = j
        else:
            found.append(boxes[i])
            i += 1
    return found


def wrap(boxes):
    rows, x = [[]], 0
    for box in boxes:
        if x + box.width + 3 > WIDTH - 2 * LEFT and rows[-1]:
            rows.append([])
            x = 0
        rows[-1].append(box)
        x += box.width + 3
    return rows


def cut(boxes):
    """At most ROWS rows: the first and the last, and how many tokens were left out."""
    rows = wrap(boxes)
    if len(rows) <= ROWS:
        return rows
    head = sum(len(row) for row in rows[:ROWS // 2]) - 2
    for tail in range(len(boxes) - head - 1, 0, -1):
        gap = Box(f"\u2026 {len(boxes) - head - tail} \u2026", "gap")
        rows = wrap(boxes[:head] + [gap] + boxes[-tail:])
        if len(rows) <= ROWS:
            return rows
    return rows[:ROWS]


def parts(example):
    """Titles with their rows of boxes."""
    if "labels" in example:
        return [("", cut(shorten(sequence(example["text"], example["labels"]))))]
    if "class" in example:
        return [("", cut([Box(t) for t in example["text"].split()])),
                ("class", [[Box(example["class"], "question")]])]
    return [(name, cut([Box(t, role) for t in example[name].split()]))
            for name, role in (("source", "key"), ("target", "question"))]


def text(x, y, what, fill, size=12, anchor="start", extra=""):
    return (f"<text x='{x:.1f}' y='{y:.1f}' font-size='{size}' fill='{fill}' "
            f"text-anchor='{anchor}'{extra}>{escape(what)}</text>")


def draw_row(row, y):
    out, x = [], LEFT
    for box in row:
        fill, ink = COLOURS[box.role]
        frame = f" stroke='{ink}'" if box.role == "question" else ""
        out.append(f"<rect x='{x:.1f}' y='{y}' width='{box.width:.1f}' height='{BOX}' "
                   f"rx='3' fill='{fill}'{frame}/>")
        middle = x + box.width / 2
        out.append(text(middle, y + 15, box.text, ink, 12, "middle"))
        if box.label is not None:
            out.append(text(middle, y + BOX + 13, box.label, COLOURS["answer"][1], 11,
                            "middle", " font-weight='bold'"))
        x += box.width + 3
    return out


def picture(task):
    out, y = [], 34
    out.append(text(LEFT, 20, task["task"], "#1f2933", 12, "start", " font-weight='bold'"))
    drawn = set()
    for title, rows in parts(task["examples"][0]):
        if title:
            out.append(text(LEFT, y + 10, title, "#697586", 11))
            y += 16
        for row in rows:
            out += draw_row(row, y)
            labels = any(box.label is not None for box in row)
            drawn.update(box.role for box in row)
            y += PITCH if labels else BOX + 6
        y += 4
    x = LEFT
    for role, what in LEGEND:
        if role not in drawn or "labels" not in task["examples"][0]:
            continue
        out.append(f"<rect x='{x}' y='{y}' width='14' height='12' rx='2' "
                   f"fill='{COLOURS[role][0]}' stroke='{COLOURS[role][1]}'/>")
        out.append(text(x + 20, y + 10, what, "#697586", 11))
        x += 40 + int(CHAR * len(what))
    height = y + (22 if x > LEFT else 4)
    return (f"<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {WIDTH} {height}' "
            f"width='{WIDTH}' height='{height}' role='img' "
            "font-family='ui-monospace, monospace'>\n"
            f"<title>An example of {escape(task['name'])}: {escape(task['summary'])}</title>\n"
            f"<rect width='{WIDTH}' height='{height}' rx='8' fill='#ffffff'/>\n"
            + "\n".join(out) + "\n</svg>\n")


def main():
    foci, folder, *names = sys.argv[1:]
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    for name in names or [task["name"] for task in run(foci, "task", "--json")]:
        task = run(foci, "task", name, "--json")
        (folder / f"{task['name']}.svg").write_text(picture(task), encoding="utf-8")


if __name__ == "__main__":
    main()
