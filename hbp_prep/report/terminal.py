"""The report on the terminal. User text goes in as text, never as markup."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rich.cells import cell_len
from rich.console import Console
from rich.table import Table as RichTable
from rich.text import Text

from hbp_prep.report import tables
from hbp_prep.report.inspect import visible

GAP = 2
"""Characters between two columns."""

MIN_TEXT_WIDTH = 24
"""A column of words is folded to no less than this."""


def print_report(report: Mapping[str, Any], console: Console) -> None:
    """Print the verdict and every table of ``report``, the content of metrics.json."""
    console.print()
    for sentence in tables.verdict(report):
        console.print(Text(sentence, style="bold"))
    shown = [tables.comparison(report), tables.groups(report), tables.sources(report)]
    if report["rejected"]:
        shown.append(tables.rejected(report))
    print_tables(shown, console)


def print_tables(shown: Iterable[tables.Table], console: Console) -> None:
    """Print tables with their notes; one that is too wide continues below itself, with its first column again."""
    for table in shown:
        title = table.title
        widths = [_needed_width(table, column) for column in range(len(table.columns))]
        for columns in _blocks(widths, console.width):
            console.print()
            console.print(_rich_table(table, columns, widths, title))
            title = ""
        if table.note:
            console.print(Text(table.note, style="dim"))
    console.print()


def _blocks(needed: Sequence[int], width: int) -> list[list[int]]:
    """Columns of each part of a table that fits ``width`` characters; column c needs ``needed[c]``."""
    blocks, used = [[0]], needed[0]
    for column in range(1, len(needed)):
        if used + GAP + needed[column] > width and len(blocks[-1]) > 1:
            blocks.append([0])
            used = needed[0]
        blocks[-1].append(column)
        used += GAP + needed[column]
    return blocks


def _needed_width(table: tables.Table, column: int) -> int:
    widest = max(cell_len(visible(cell)) for cell in (table.columns[column], *(row[column] for row in table.rows)))
    return min(widest, MIN_TEXT_WIDTH) if column in table.text_columns else widest


def _rich_table(table: tables.Table, columns: Sequence[int], widths: Sequence[int], title: str) -> RichTable:
    rich_table = RichTable(
        title=Text(title, style="bold"),
        title_justify="left",
        box=None,
        pad_edge=False,
        header_style="dim",
        padding=(0, GAP, 0, 0),
    )
    for column in columns:
        is_text = column in table.text_columns
        rich_table.add_column(
            Text(table.columns[column]),
            justify="left" if is_text else "right",
            overflow="fold",
            no_wrap=not is_text,
            min_width=widths[column],
        )
    for row in table.rows:
        rich_table.add_row(*(Text(visible(row[column])) for column in columns))
    return rich_table
