"""Bulk operations: one start of one is a run, with the state of every item in every stage."""

from jobwell.core.runs import BadRow, Card, ItemError, StageCard
from jobwell.runs.items import Item, Items
from jobwell.runs.operation import Operation
from jobwell.runs.plan import Plan
from jobwell.runs.readers import csv_rows, query_rows, xlsx_rows
from jobwell.runs.run import Run, Runs
from jobwell.runs.stages import RunContext

__all__ = [
    "BadRow", "Card", "Item", "ItemError", "Items", "Operation", "Plan", "Run", "RunContext", "Runs", "StageCard", "csv_rows",
    "query_rows", "xlsx_rows",
]  # fmt: skip
