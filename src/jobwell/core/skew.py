"""The clock of a host against the database's: when the difference is worth a word, and which."""

TOO_MUCH = 2.0  # seconds; a network that is slow to answer looks like less


def in_words(skew: float) -> str:
    """'12.0 s ahead of', to go before "the database's"."""
    return f"{abs(skew):.1f} s {'ahead of' if skew > 0 else 'behind'}"


def warnings(rows: "list[dict[str, object]]") -> list[str]:
    """A sentence for each worker, among rows as the store lists them, whose host's clock is too far off."""
    return [
        f"the clock of the worker {row['name']} is {in_words(row['skew'])} the database's; jobs go by the database's"
        for row in rows
        if row["state"] != "dead" and isinstance(row["skew"], float) and abs(row["skew"]) > TOO_MUCH
    ]
