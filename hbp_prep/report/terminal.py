"""The report on the terminal. User text goes in as text, never as markup."""

from collections.abc import Iterable, Mapping
from typing import Any

from rich.console import Console
from rich.table import Table as RichTable
from rich.text import Text

from hbp_prep.report import tables
from hbp_prep.report.inspect import visible


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
    """Print tables with their notes."""
    for table in shown:
        console.print()
        console.print(_rich_table(table))
        if table.note:
            console.print(Text(table.note, style="dim"))
    console.print()


def _rich_table(table: tables.Table) -> RichTable:
    rich_table = RichTable(
        title=Text(table.title, style="bold"), title_justify="left", box=None, pad_edge=False, header_style="dim"
    )
    for index, column in enumerate(table.columns):
        is_text = index in table.text_columns
        rich_table.add_column(
            Text(column), justify="left" if is_text else "right", overflow="fold", no_wrap=not is_text
        )
    for row in table.rows:
        rich_table.add_row(*(Text(visible(cell)) for cell in row))
    return rich_table
