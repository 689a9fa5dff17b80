"""The log of a worker process: set up here and nowhere else. A process that only enqueues keeps the logging it has."""

import importlib
import logging
import sys
from collections.abc import MutableMapping
from typing import Any


def configure(form: str) -> None:
    """Set up the standard logging and structlog, on stderr. What the application sets up later, at its import, goes before.

    Args:
        form: "text" for people, "json" for machines, "auto" for the one that fits stderr, "none" to touch nothing.
    """
    if form == "none":
        return
    _load_structlog()
    import structlog

    from jobwell.worker.logs import JobFields, add_job_fields

    plain = form == "text" or (form == "auto" and sys.stderr.isatty())
    stamp: list[Any] = [
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    handler = logging.StreamHandler()
    handler.addFilter(JobFields())
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=[structlog.stdlib.ExtraAdder(), *stamp],
            processors=[
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                *(_for_people() if plain else _for_machines()),
            ],
        )
    )
    logging.basicConfig(level=logging.INFO, handlers=[handler], force=True)
    logging.getLogger("psycopg.pool").setLevel(logging.ERROR)  # our own loops say it once, in words
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level, structlog.contextvars.merge_contextvars, add_job_fields, *stamp,
            structlog.stdlib.PositionalArgumentsFormatter(), structlog.processors.StackInfoRenderer(),
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
    )  # fmt: skip


def _load_structlog() -> None:
    """Without rich, which it would load for tracebacks in colour that are not used here: 5 MB in each worker."""
    if "structlog" in sys.modules or "rich" in sys.modules:
        return
    modules: dict[str, Any] = sys.modules
    modules["rich"] = None  # an import of it fails then, as if it were not installed
    try:
        importlib.import_module("structlog")
    finally:
        del sys.modules["rich"]


# Neither form shows the values of local variables in a traceback: the arguments of jobs are among them.


def _for_people() -> list[Any]:
    import structlog

    colours = sys.stderr.isatty()
    return [_trace_last, structlog.dev.ConsoleRenderer(colors=colours, exception_formatter=structlog.dev.plain_traceback)]


def _for_machines() -> list[Any]:
    import structlog

    transformer = structlog.tracebacks.ExceptionDictTransformer(show_locals=False)
    return [structlog.processors.ExceptionRenderer(transformer), structlog.processors.JSONRenderer()]


def _trace_last(_logger: Any, _method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    trace = event.pop("traceback", None)
    if trace:
        event["exception"] = trace
    return event
