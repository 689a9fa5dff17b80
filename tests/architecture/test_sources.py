"""What the source may not hold."""

import ast
import re

from tests.architecture.helpers import ROOT, Module, modules, report

TESTS = ROOT / "tests"
CODE_FROM_DATA = {"cloudpickle", "dill", "marshal", "pickle", "shelve"}
EVALUATORS = {"eval", "exec", "compile", "__import__"}
STRICT = ("core", "store", "worker")
SLEEPING = re.compile(r"\bsleep\((?!0\))")  # asyncio.sleep(0) lets no time pass
WAITING = TESTS / "waiting.py"


def _calls(module: Module, names: set[str]) -> list[str]:
    calls = (node for node in ast.walk(module.tree) if isinstance(node, ast.Call))
    named = ((call, call.func.id) for call in calls if isinstance(call.func, ast.Name))
    return [f"{module.at(call)} {name}(" for call, name in named if name in names]


def test_nothing_is_printed() -> None:
    report(
        [call for module in modules() for call in _calls(module, {"print"})], "Say it through a console, click.echo or a logger."
    )


def test_no_code_comes_out_of_data() -> None:
    problems = [call for module in modules() for call in _calls(module, EVALUATORS)]
    for module in modules():
        for node in ast.walk(module.tree):
            names: list[str] = []
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                names = [node.module or ""]
            problems += [f"{module.at(node)} {name}" for name in names if name.split(".")[0] in CODE_FROM_DATA]
    report(problems, "Stored data is JSON and the catalog decides what runs: no pickle, no marshal, no eval.")


def test_the_types_of_core_store_and_worker_are_whole() -> None:
    problems = []
    for module in modules():
        if module.inside(*STRICT):
            lines = module.text.splitlines()
            problems += [f"{module.at(at)} {line.strip()[:90]}" for at, line in enumerate(lines, 1) if "# type: ignore" in line]
    report(problems, "No `type: ignore` in core, store and worker.")


def test_no_test_sleeps() -> None:
    problems = []
    for module in modules(TESTS):
        if module.path != WAITING:
            lines = module.text.splitlines()
            problems += [f"{module.at(at)} {line.strip()[:90]}" for at, line in enumerate(lines, 1) if SLEEPING.search(line)]
    report(problems, "A test waits for an event or a condition (tests/waiting.py), never for time.")
