"""Plain tables, through rich."""

from __future__ import annotations

import io
from collections.abc import Sequence

from rich.console import Console
from rich.table import Table


def table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Aligned columns without frames. Cells are never wrapped or cut, so that they can be copied and grepped."""
    grid = Table(box=None, pad_edge=False, show_edge=False)
    for column in columns:
        grid.add_column(column, no_wrap=True, justify="right" if column == "n" or column in _NUMBERS else "left")
    for row in rows:
        grid.add_row(*row)
    out = io.StringIO()
    Console(file=out, width=10_000, markup=False, highlight=False, emoji=False, color_system=None).print(grid)
    return "\n".join(line.rstrip() for line in out.getvalue().splitlines())


_NUMBERS = {"Kendall", "Pearson", "Spearman"}
