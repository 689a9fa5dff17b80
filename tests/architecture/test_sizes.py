"""Small files, small functions. Split by meaning: a limit reached says that two things live in one place."""

import ast

from tests.architecture.helpers import modules, report, statements

MODULE = 400
FUNCTION = 60
SERVICE = 200
STATEMENT = 40
SERVICES = ("scheduler", "outbox", "monitor", "worker/housekeeping")


def test_a_module_has_at_most_400_lines() -> None:
    sizes = ((module, module.text.count("\n")) for module in modules())
    report(
        [f"{module.at(1)} has {size} lines" for module, size in sizes if size > MODULE], f"A module has at most {MODULE} lines."
    )


def test_a_service_has_at_most_200_lines() -> None:
    sizes = ((module, module.text.count("\n")) for module in modules() if module.inside(*SERVICES))
    report([f"{module.at(1)} has {size} lines" for module, size in sizes if size > SERVICE], f"A service has at most {SERVICE}.")


def test_a_function_has_at_most_60_lines() -> None:
    problems = []
    for module in modules():
        for node in ast.walk(module.tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                size = (node.end_lineno or node.lineno) - node.lineno + 1
                if size > FUNCTION:
                    problems.append(f"{module.at(node)} {node.name} has {size} lines")
    report(problems, f"A function has at most {FUNCTION} lines, its docstring included.")


def test_an_sql_statement_has_at_most_40_lines() -> None:
    problems = [f"{where} {name} has {len(lines)} lines" for where, name, lines in statements() if len(lines) > STATEMENT]
    report(problems, f"A statement under store/sql has at most {STATEMENT} lines, its comment included.")
