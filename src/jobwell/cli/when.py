"""Until when something counts, as people write it."""

import re
from collections.abc import Callable
from datetime import UTC, datetime, time, timedelta
from typing import Any

import click

TIME_OF_DAY = re.compile(r"([01]?\d|2[0-3]):([0-5]\d)")


def ends_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """The options by which something ends by itself."""
    for option in (
        click.option("--until", metavar="TIME", help="The same: 18:00 (the next one, in this host's zone), ISO 8601, or 2h."),
        click.option("--for", "for_", metavar="DURATION", help="Ends by itself after so long: 30m, 2h."),
    ):
        command = option(command)
    return command


def ending(database: Any, for_: str | None, until: str | None) -> datetime | None:
    """What the two options say, by the database's clock; None: no end."""
    from jobwell.store import control

    if for_ is not None and until is not None:
        raise click.UsageError("say --for or --until; one of the two")
    given = for_ if for_ is not None else until
    if given is None:
        return None
    now: datetime = database.run(control.now(database.statements))
    return moment(given, now, "--for" if for_ is not None else "--until", durations_only=for_ is not None)


def moment(given: str, now: datetime, option: str, *, durations_only: bool = False) -> datetime:
    """Read "2h", "18:00" or ISO 8601.

    Args:
        given: what was typed. A time without a zone is one of this host's.
        now: the moment from which it is reckoned.
        option: which it was, for the error.
        durations_only: nothing but "2h".
    """
    from jobwell.core.duration import seconds
    from jobwell.core.errors import DeclarationError

    found = None if durations_only else (_time_of_day(given, now) or _iso(given))
    if found is None:
        try:
            found = now + timedelta(seconds=seconds(given, option))
        except DeclarationError as error:
            more = "" if durations_only else ", or a time: 18:00, 2030-01-31T18:00, 2030-01-31T18:00Z"
            raise click.BadParameter(f"{error.message}{more}", param_hint=option) from None
    if found <= now:
        raise click.BadParameter(f"{given} is over already; it is {now:%Y-%m-%d %H:%M:%S} UTC", param_hint=option)
    return found


def _time_of_day(given: str, now: datetime) -> datetime | None:
    found = TIME_OF_DAY.fullmatch(given.strip())
    if found is None:
        return None
    wanted, here = time(int(found[1]), int(found[2])), now.astimezone()
    today = datetime.combine(here.date(), wanted).astimezone()
    return today if today > here else datetime.combine(here.date() + timedelta(days=1), wanted).astimezone()


def _iso(given: str) -> datetime | None:
    try:
        found = datetime.fromisoformat(given.strip())
    except ValueError:
        return None
    return found.astimezone() if found.tzinfo is None else found


class Moment(click.ParamType[datetime | timedelta]):
    """A moment: a duration back from now, or an ISO date and time."""

    name = "when"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> datetime | timedelta:
        """Read it; a time without a zone is UTC, as the lists show it."""
        from jobwell.core.duration import seconds
        from jobwell.core.errors import DeclarationError
        from jobwell.core.job import FIRST_YEAR, LAST_YEAR

        if isinstance(value, datetime | timedelta):
            return value
        try:
            if str(value)[:4].isdigit() and "-" in value:
                found = datetime.fromisoformat(value)
                if not FIRST_YEAR < found.year < LAST_YEAR:
                    self.fail(f"{value!r} is too far away: the years are {FIRST_YEAR + 1} to {LAST_YEAR - 1}", param, ctx)
                return found if found.tzinfo else found.replace(tzinfo=UTC)
            return timedelta(seconds=seconds(value))
        except DeclarationError as error:
            if "between" in error.message:  # it is a duration, and too long a one
                self.fail(f"{value!r} is too long; at most 100 years", param, ctx)
            self.fail(f"{value!r} is neither a duration like '2h' nor a date and time like 2030-01-31T08:00Z", param, ctx)
        except ValueError:
            self.fail(f"{value!r} is neither a duration like '2h' nor a date and time like 2030-01-31T08:00Z", param, ctx)


MOMENT = Moment()
