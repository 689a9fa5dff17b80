"""What failures have in common: the task, the error, the place, and the message without what differs from job to job."""

import hashlib
import re

READ = 1_000  # characters of a message that are looked at
LONGEST = 200  # characters of it that are kept
SHORT = 10

# In this order: what stands earlier is not taken apart by what follows. Repeats are bounded, so that no text makes them slow.
_VARYING = re.compile(
    r"""
      (?P<url>\b[a-z][a-z0-9+.-]{1,20}://[^\s'"<>]{1,500})
    | (?P<mail>(?<![\w.+-])[\w.+-]{1,64}@[\w-]{1,64}(?:\.[\w-]{1,64}){0,8})
    | (?P<uuid>(?<![0-9a-fA-F-])[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}(?![0-9a-fA-F-]))
    | (?P<time>\d{4}-\d\d-\d\d(?:[T\ ]\d\d:\d\d(?::\d\d(?:[.,]\d{1,9})?)?(?:Z|[+-]\d\d:?\d\d)?)?
        |(?<![\d:])\d\d:\d\d:\d\d(?:[.,]\d{1,9})?)
    | (?P<text>"[^"\n]{1,500}"|`[^`\n]{1,500}`|«[^»\n]{1,500}»|“[^”\n]{1,500}”|(?<!\w)'[^'\n]{1,500}'(?!\w))
    | (?P<path>(?<![\w/.])(?:[A-Za-z]:\\|~/|\.{0,2}/)[\w.@%+-]{1,255}(?:[\\/][\w.@%+-]{1,255}){0,40}/?)
    | (?P<hex>\b0[xX][0-9a-fA-F]{1,500}\b|(?<!\w)(?=[a-fA-F]{0,40}\d)[0-9a-fA-F]{8,500}(?!\w))
    | (?P<n>(?<![\w.])[+-]?\d+(?:[.,]\d+){0,20}|\d+)
    """,
    re.VERBOSE,
)
_WHOLE = re.compile(r"[+-]?\d+")


def normalised(message: str | None) -> str:
    """A message with marks in place of what differs: numbers, times, uuids, hex, addresses, quoted texts, paths. Bounded.

    "employee 7 is gone" and "employee 8812 is gone" are both "employee <n> is gone". No digit is left.
    """
    text = _VARYING.sub(_mark, (message or "")[:READ])
    return " ".join(text.split())[:LONGEST].rstrip()


def _mark(found: "re.Match[str]") -> str:
    return "<n>" if _WHOLE.fullmatch(found[0]) else f"<{found.lastgroup}>"


def fingerprint(task: str, *, reason: str, code: str | None, error_type: str, place: str, message: str) -> str:
    """What failures of one kind have in common.

    A code (of `Reject`) is what the task's author tells apart, so its message does not count; without an error it is the reason.
    """
    if code or not error_type:
        return "|".join(filter(None, (task, code or reason, place)))
    return "|".join(filter(None, (task, error_type, place, normalised(message))))


def short(whole: str) -> str:
    """A name for a fingerprint that a person can type."""
    return hashlib.blake2b(whole.encode("utf-8", "replace"), digest_size=SHORT // 2).hexdigest()
