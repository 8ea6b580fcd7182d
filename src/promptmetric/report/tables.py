"""Tables as plain text (through rich), markdown and LaTeX."""

from __future__ import annotations

import io
import re
from collections.abc import Sequence

from rich.console import Console
from rich.table import Table

_NUMBER = re.compile(r"[+-]?[\d.].*|nan|-|")
_LATEX = str.maketrans(
    {
        "\\": r"\textbackslash{}",
        "&": r"\&",
        "%": r"\%",
        "$": r"\$",
        "#": r"\#",
        "_": r"\_",
        "{": r"\{",
        "}": r"\}",
        "~": r"\textasciitilde{}",
        "^": r"\textasciicircum{}",
        "ε": r"$\varepsilon$",
        "–": "--",
    }
)


def table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Aligned columns without frames. Cells are never wrapped or cut, so that they can be copied and grepped."""
    grid = Table(box=None, pad_edge=False, show_edge=False)
    for column, right in zip(columns, _right(columns, rows), strict=True):
        grid.add_column(column, no_wrap=True, justify="right" if right else "left")
    for row in rows:
        grid.add_row(*row)
    out = io.StringIO()
    Console(file=out, width=10_000, markup=False, highlight=False, emoji=False, color_system=None).print(grid)
    return "\n".join(line.rstrip() for line in out.getvalue().splitlines())


def markdown_table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table for GitHub and the like; bars and stars within cells are escaped."""
    rule = ["---:" if right else "---" for right in _right(columns, rows)]
    lines = [[cell.replace("|", r"\|").replace("*", r"\*") for cell in row] for row in (columns, rule, *rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def latex_table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A `tabular` that needs the package booktabs."""
    form = "".join("r" if right else "l" for right in _right(columns, rows))
    head, *body = (" & ".join(cell.translate(_LATEX) for cell in row) + r" \\" for row in (columns, *rows))
    return "\n".join(
        [rf"\begin{{tabular}}{{{form}}}", r"\toprule", head, r"\midrule", *body, r"\bottomrule", r"\end{tabular}"]
    )


def _right(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> list[bool]:
    """Columns of numbers are set to the right."""
    cells = list(zip(*rows, strict=True)) or [()] * len(columns)
    return [set(column) - {"", "-"} != set() and all(map(_NUMBER.fullmatch, column)) for column in cells]
