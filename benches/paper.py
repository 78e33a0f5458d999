"""Figures for people, and tables that stand between two marks of a document.

A table is written again by the command in its first mark, so that nobody copies figures by hand.
"""

import os
import platform

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def scaled(value, units):
    """Three digits, and the largest of `units` (each a thousand of the one before) that fits."""
    at = 0
    while value >= 999.5 and at + 1 < len(units):
        value, at = value / 1000, at + 1
    digits = 0 if value >= 99.95 else 1 if value >= 9.995 else 2
    return f"{value:.{digits}f} {units[at]}"


def size(count):
    """`65536` as `64 KiB`."""
    for unit, name in ((1 << 20, "MiB"), (1 << 10, "KiB")):
        if count >= unit and count % unit == 0:
            return f"{count // unit} {name}"
    return f"{count} B"


def markdown(heads, rows):
    """The lines of a table."""
    heads = list(heads)
    lines = ["| " + " | ".join(cells) + " |" for cells in [heads, *rows]]
    return [lines[0], "|---" * len(heads) + "|", *lines[1:]]


def machine():
    """The kernel and the number of cores, as figures are shown with."""
    return f"{os.cpu_count()} cores, Linux {platform.release().split('-')[0]}"


def write(document, name, lines):
    """Replaces what stands between `<!-- name: begin … -->` and `<!-- name: end -->`."""
    path = f"{ROOT}/{document}"
    with open(path) as file:
        text = file.read().split("\n")
    begin = [at for at, line in enumerate(text) if line.startswith(f"<!-- {name}: begin")]
    end = [at for at, line in enumerate(text) if line.startswith(f"<!-- {name}: end")]
    if len(begin) != 1 or len(end) != 1 or begin[0] > end[0]:
        raise SystemExit(f"{document} has no pair of marks for {name}")
    text[begin[0] + 1 : end[0]] = ["", *lines, ""]
    with open(path, "w") as file:
        file.write("\n".join(text))
