import io

import pytest
from rich.console import Console

from hbp_prep.report.tables import Table
from hbp_prep.report.terminal import print_tables

NUM_FIGURES = 12
WIDE = Table(
    title="Methods",
    columns=("method", *(f"figure {column}" for column in range(NUM_FIGURES))),
    rows=tuple((f"method-{row}", *(f"{row}.{column:04}" for column in range(NUM_FIGURES))) for row in range(3)),
    note="A note.",
)
WORDS = Table(
    title="Rows not trained on",
    columns=("reason", "rows", "first of them", "detail"),
    rows=(("bad_content", "1,234,567", "/corpora/a/long/folder/of/chats/rows.jsonl row 17", "word " * 16),),
    text_columns=(0, 2, 3),
)


def printed(table: Table, width: int) -> str:
    console = Console(file=io.StringIO(), width=width, color_system=None)
    print_tables([table], console)
    text = console.file.getvalue()
    assert all(len(line.rstrip()) <= width for line in text.splitlines())
    return text


@pytest.mark.parametrize("width", [24, 40, 80, 100, 200])
def test_no_width_cuts_a_figure_or_a_name(width):
    words = printed(WIDE, width).split()
    for row in WIDE.rows:
        for cell in row[1:]:
            assert words.count(cell) == 1, f"{cell} at {width} columns"
        assert row[0] in words
    assert "…" not in words


def test_a_wide_table_continues_below_itself_with_its_names():
    text = printed(WIDE, 80)
    parts = text.count("method-0")
    assert parts > 1
    assert text.count("Methods") == 1
    assert text.count("method-2") == text.count("method ") == parts
    assert text.count("A note.") == 1


def test_a_table_that_fits_is_in_one_part():
    assert printed(WIDE, 200).count("method-0") == 1


def test_words_are_folded_not_cut():
    text = printed(WORDS, 60)
    assert "1,234,567" in text and "bad_content" in text
    assert text.count("word") == 16
