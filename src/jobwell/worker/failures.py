"""What went wrong, in words: texts made from what was raised, cleaned and cut, whatever the error itself may do."""

import traceback
from pathlib import Path
from typing import Any

from jobwell.core import text
from jobwell.core.classify import Verdict
from jobwell.core.outcome import Failure

MESSAGE_LIMIT = 4_000
TRACEBACK_LIMIT = 16_000
OURS = tuple(str(Path(__file__).parents[1] / part) for part in ("worker", "testing"))


def failure_of(error: BaseException, verdict: Verdict) -> Failure:
    """Of an error, with what it was judged to be."""
    kind_of = type(error)
    name = kind_of.__qualname__ if kind_of.__module__ == "builtins" else f"{kind_of.__module__}.{kind_of.__qualname__}"
    message = text.clean(said(error), MESSAGE_LIMIT)
    return Failure(text.clean(name, 200), message, trace_of(error), _place(error), verdict.kind, verdict.origin)


def said(value: object) -> str:
    """The text of anything, also of what raises when it is asked for it."""
    try:
        return str(value)
    except BaseException:  # noqa: BLE001  an error whose text raises is still an error
        return f"<{type(value).__name__} whose text cannot be read>"


def trace_of(error: BaseException) -> str:
    """Its traceback, from the user's code on."""
    try:
        lines = traceback.format_exception(type(error), error, _user_part(error))
    except BaseException:  # noqa: BLE001  as above: formatting asks the error for its text, its causes for theirs
        return ""
    return text.clean("".join(lines), TRACEBACK_LIMIT)


def _user_part(error: BaseException) -> Any:
    """The traceback from the first frame of user code on: ours, and what is between ours, tell the user nothing."""
    trace = begin = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        if trace.tb_frame.f_code.co_filename.startswith(OURS):
            begin = trace.tb_next
        trace = trace.tb_next
    return begin


def _place(error: BaseException) -> str:
    frames = traceback.extract_tb(_user_part(error))
    return text.clean(f"{Path(frames[-1].filename).name}:{frames[-1].name}", 200) if frames else ""
