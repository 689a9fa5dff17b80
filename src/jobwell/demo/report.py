"""The books as a person reads them."""

from rich.console import Console
from rich.table import Table
from rich.text import Text

from jobwell.demo.books import Books


def show(console: Console, books: Books) -> None:
    """Print the books."""
    table = Table(title="The books, counted from the outside", title_justify="left")
    table.add_column("")
    table.add_column("people", justify="right")
    table.add_column("counted in", style="dim")
    reasons = ", ".join(f"{code}: {count}" for code, count in books.reasons.items())
    for label, count, where in (
        ("transferred by the event", books.employees, "the file"),
        ("updated", books.updated, "the rows of the employees, compared with the file"),
        ("not reached at first", books.failed, reasons),
        ("corrected and retried", books.retried, "the second file, and the failed items of the run alone"),
        ("mailed in the end", books.mailed, "the mailboxes"),
        ("failed in the end", books.left, "the failed items of the run"),
        ("lost", books.lost, "neither mailed nor failed"),
        ("duplicates", books.duplicates, "second deliveries in a mailbox"),
        ("repeated sends", books.repeated, "recognised by the mail server, not delivered again"),
    ):
        table.add_row(label, f"{count:,}", where)
    console.print(table)
    if books.urgent_worst_wait_ms is not None:
        console.print(
            f"Urgent jobs overtook: the slowest began after {books.urgent_worst_wait_ms / 1000:.2f} s"
            f" while {books.overtaken:,} mails waited."
        )
    console.print(Text(f"The run ended twice. At first: {books.sentence}"))
    if books.balanced:
        sum_of = f"{books.mailed:,} mailed + {books.left:,} failed = {books.employees:,} people"
        console.print(Text.assemble(("Balanced: ", "green"), f"{sum_of}, in {books.seconds:.1f} s."))
    else:
        console.print(Text.assemble(("Not balanced: ", "red"), f"{'; '.join(books.problems)}."))
