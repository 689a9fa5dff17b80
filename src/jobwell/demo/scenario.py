"""The HR department's case from beginning to end: make a world, let real processes work in it, balance the books, remove it."""

import contextlib
import signal
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from types import FrameType

import psutil

from jobwell.actions import run_report as action
from jobwell.demo import many
from jobwell.demo.books import Books, Story, balance
from jobwell.demo.many import Counted, is_exact
from jobwell.demo.people import corrections
from jobwell.demo.processes import PATIENCE, Child, DemoError, sink, workers
from jobwell.demo.progress import Progress
from jobwell.demo.tasks import Event, Moved, tasks, transfer, urgent
from jobwell.demo.watch import Watch
from jobwell.demo.world import World, demo_settings, world
from jobwell.runs import Run
from jobwell.settings import Settings, masked

URGENT = 20
FEWEST_TO_KILL = 100  # fewer are done before a worker process can be killed
STUCK = 60.0  # seconds without any movement
LOOK = 0.01  # seconds between two looks at the mail
ASK = 0.2  # seconds between two looks at the database
HASTE = 3.0  # seconds for the workers to stop when the demo is broken off


@dataclass(frozen=True)
class Options:
    """What the person asked for."""

    people: int
    processes: int = 2
    kill: bool = False
    keep: bool = False
    items: int = 0  # instead of people


def run(settings: Settings, options: Options, progress: Progress, tell: Callable[[str], None]) -> Books | Counted:
    """Run it. Whatever happens, processes are stopped at the end, and schemas and files removed unless they are to be kept.

    Args:
        settings: as configured; the demo takes schemas of its own beside the configured one.
        options: what the person asked for.
        progress: where it is shown.
        tell: told what a person should know beside the books: where to look when everything is kept, and what went wrong.

    Raises:
        DemoError: it cannot begin, a process of it died, or nothing moved for a minute.
        StoreError: the database cannot be used.
    """
    prefix = "" if settings.database_url else "JOBWELL_DATABASE_URL=embedded "
    settings = demo_settings(settings)
    with contextlib.ExitStack() as stack:
        deaf = stack.enter_context(_interruptible())
        what = f"a run of {options.items:,} items" if options.items else f"{options.people:,} people"
        progress.say(f"Making ready: {what} in {_store(settings)}, a mail server, {options.processes} workers")
        place = stack.enter_context(world(settings, 1 if options.items else options.people, keep=options.keep))
        if options.keep:
            stack.callback(tell, _where(place, prefix))
        smtp = stack.enter_context(sink(place.folder))
        team = workers(settings, options.processes, smtp, place.folder)
        stack.callback(team.stop, HASTE)
        stack.callback(deaf)  # comes first: what follows is not interrupted
        _await_workers(place, team, options.processes)
        if options.items:
            return many.work(place, team, options.items, progress)
        watch, story = _work(place, team, options, progress)
        code = team.stop(settings.grace + 10)
        watch.mail()
        books = balance(place, watch.tally, story, seconds=watch.seconds, overtaken=watch.overtaken)
        if code != 0:
            how = "it had to be killed" if code is None else f"exit code {code}"
            tell(f"the worker did not stop in order ({how}); it said last:\n{team.tail()}")
        return books


def _store(settings: Settings) -> str:
    if settings.database_url != "embedded":
        return masked(settings.database_url)
    from jobwell import embedded

    return f"the embedded server (its data is in {embedded.data_folder()})"


def _where(place: World, prefix: str) -> str:
    look = f"{prefix}JOBWELL_SCHEMA={place.settings.schema} jobwell"
    return (
        f"Kept: `{look} runs list`, `{look} runs show` and `{look} runs report` show the run; the employees are in the schema"
        f" {place.case.company}, until the next demo; mail and logs are in {place.folder}"
    )


def _await_workers(place: World, team: Child, processes: int) -> None:
    until = time.monotonic() + PATIENCE
    while place.ask("workers")[0][0] < processes:
        team.check()
        if time.monotonic() > until:
            raise DemoError(f"no worker processes after {PATIENCE:.0f} seconds; the worker said last:\n{team.tail()}")
        time.sleep(0.05)


def _begin(place: World) -> Run:
    """The transfer of everyone, as a run."""
    place.app.include(tasks)
    event = Event(place.people[0].event_version)
    items = (Moved(person.employee_id, person.new_department) for person in place.people)
    return transfer.start(event, items=items, key=f"transfer-{event.event_version}", by="hr.officer", why="the new offices")


def _work(place: World, team: Child, options: Options, progress: Progress) -> tuple[Watch, Story]:
    watch = Watch(place, _begin(place))
    story = Story()
    kill, ask, next_look = options.kill, True, 0.0
    while True:
        team.check()
        mailed = watch.mail()
        if kill and mailed >= len(place.people) / 4:
            words = _kill_one(place, team)
            if words:
                kill = False
                progress.say(words)
        over = False
        if time.monotonic() >= next_look:
            next_look = time.monotonic() + ASK
            moment = watch.look()
            progress.show(moment)
            over = moment.over
            if watch.still > STUCK:
                raise DemoError(_stuck(place, team))
        if ask and (mailed >= len(place.people) / 2 or over):
            watch.overtaken = _ask_urgently(place, watch)
            progress.say(f"{URGENT} urgent jobs come while {watch.overtaken:,} mails wait")
            ask = over = False
        if over and not story.first:
            _correct(place, watch, story, progress)
        elif over:
            story.last, story.left = watch.run.status().status, _failed(watch.run)
            story.exact = story.exact and is_exact(place, watch.run)
            return watch, story
        time.sleep(LOOK)


def _correct(place: World, watch: Watch, story: Story, progress: Progress) -> None:
    """The run has ended with errors: the second file corrects the addresses, and just what failed is tried again."""
    found = action.find(place.database, watch.run.id)
    story.first, story.failed, story.sentence = found.card.status, _failed(watch.run), found.sentence()
    story.exact = is_exact(place, watch.run)
    right = corrections()
    story.corrected = {employee: right[employee] for employee in story.failed if employee in right}
    place.ask("correct", ids=list(story.corrected), emails=list(story.corrected.values()))
    if not story.failed:
        return
    reasons = ", ".join(f"{number:,} {code} in {stage}" for stage, code, number in watch.run.reasons())
    progress.say(f"The run is {story.first.replace('_', ' ')}: {reasons}; {len(story.corrected):,} addresses are corrected")
    story.retried = watch.run.retry(by="hr.officer", why="addresses corrected", keys=[str(each) for each in story.corrected])
    progress.say(f"{story.retried:,} failed items are tried again, and nothing else")


def _failed(run: Run) -> dict[int, str]:
    """Who has failed, and why."""
    found: dict[int, str] = {}
    after = None
    while page := run.errors(1000, after=after):
        found |= {int(one.key): one.code or "" for one in page}
        after = page[-1].place
    return found


def _ask_urgently(place: World, watch: Watch) -> int:
    """Returns how many mails waited at that moment."""
    numbers = list(range(1, URGENT + 1))
    with place.conn.transaction():
        place.ask("ask", numbers=numbers, now=datetime.now(UTC))
        place.app.enqueue_many((urgent.job(number=number) for number in numbers), conn=place.conn)
    return watch.run.status()["notify"].open


def _kill_one(place: World, team: Child) -> str:
    """SIGKILL for the busiest worker process. Returns what was done, or "" where there is none at the moment."""
    ours = {process.pid: process for process in team.descendants()}
    for pid, held in place.ask("busiest"):
        if pid in ours:
            with contextlib.suppress(psutil.NoSuchProcess):
                ours[pid].kill()
                return f"worker process {pid} was killed by SIGKILL with {held} jobs in its hands"
    return ""


def _stuck(place: World, team: Child) -> str:
    left = ", ".join(f"{count} {state} {task} in {queue}" for state, queue, task, count in place.ask("stuck"))
    return f"nothing has moved for {STUCK:.0f} seconds; there are {left or 'no jobs left'}; the worker said last:\n{team.tail()}"


@contextlib.contextmanager
def _interruptible() -> Iterator[Callable[[], None]]:
    """SIGTERM and a closed terminal end the demo as Ctrl-C does, once. Gives what makes it deaf to them before."""
    told = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield told.set
        return

    def tell(_number: int, _frame: FrameType | None) -> None:
        if not told.is_set():
            told.set()
            raise KeyboardInterrupt

    numbers = [getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)]
    before = {number: signal.signal(number, tell) for number in numbers}
    try:
        yield told.set
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
