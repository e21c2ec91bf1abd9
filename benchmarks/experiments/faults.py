"""Single-line faults at random in the product, and which test finds each.

    F=benchmarks.experiments.faults
    python -m $F draw faults.jsonl                  # 40 faults, by seed
    python -m $F mark faults.jsonl TREE             # TREE (a clone) notes who reaches each
    (cd TREE && PYTEST_ADDOPTS=--junitxml=test.xml make test)  # likewise `make platform`
    python -m $F restore TREE
    python -m $F find faults.jsonl TREE found.jsonl --seconds TREE/*.xml
    python -m $F again before.jsonl TREE again.jsonl
    python -m $F compare before.jsonl after.jsonl --seconds test.xml

A fault is one expression or statement, changed on one line: a comparison, an arithmetic or
logical operator, a number, a truth value, what is returned, a call left out. `mark` wraps each
expression in a call that appends (fault, test) to a file at once: processes that are killed,
workers and other hosts are heard too; pytest's own PYTEST_CURRENT_TEST says which test it is.
`find` runs, for each fault, only the tests that reach it, the quick ones first, until one fails
that passes without the fault. It goes on where it was stopped. A fault that nothing reaches is
not found; tests that the junit files do not have are left out. `again` tries, for each fault that
was found, only the test that found it: whether a change of the tests lost any.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import random
import re
import subprocess
import time
import xml.etree.ElementTree as xml
from collections.abc import Iterator
from dataclasses import asdict, dataclass, fields
from pathlib import Path

ROOT = Path(__file__).parents[2]
PRODUCT = ("study", "trainables")
SWAPPED: dict[type[ast.AST], tuple[str, str]] = {
    ast.Lt: ("<", "<="),
    ast.LtE: ("<=", "<"),
    ast.Gt: (">", ">="),
    ast.GtE: (">=", ">"),
    ast.Eq: ("==", "!="),
    ast.NotEq: ("!=", "=="),
    ast.In: ("in", "not in"),
    ast.NotIn: ("not in", "in"),
    ast.Is: ("is", "is not"),
    ast.IsNot: ("is not", "is"),
    ast.Add: ("+", "-"),
    ast.Sub: ("-", "+"),
    ast.Mult: ("*", "/"),
    ast.Div: ("/", "*"),
    ast.FloorDiv: ("//", "*"),
    ast.And: ("and", "or"),
    ast.Or: ("or", "and"),
}
# What a marked expression calls; processes of other environments do without.
REACHED = '__import__("builtins").__dict__.get("reached", int)'
PTH = """\
import builtins, os
def reached(number, _seen=set()):
    test = os.environ.get("PYTEST_CURRENT_TEST", "?").rpartition(" (")[0]
    if (number, test) not in _seen:
        _seen.add((number, test))
        with open({log!r}, "a") as file:
            file.write(f"{{number}}\\t{{test}}\\n")
builtins.reached = reached
"""
BATCH_SECONDS = 40.0  # of tests that one pytest is given; the first batch ends sooner
LIMIT_SECONDS = 240.0  # of wall time for one fault; what is left then is said


@dataclass(frozen=True)
class Fault:
    """A change of columns [start, end) of a line: `before` becomes `after`."""

    file: str
    line: int  # from 1
    start: int
    end: int
    before: str
    after: str
    statement: bool  # a whole statement

    def apply(self, text: str) -> str:
        return self._replace(text, self.after)

    def mark(self, text: str, number: int) -> str:
        call = f"{REACHED}({number})"
        marked = f"{call}; {self.before}" if self.statement else f"({call}, {self.before})[1]"
        return self._replace(text, marked)

    def _replace(self, text: str, by: str) -> str:
        lines = text.splitlines(keepends=True)
        line = lines[self.line - 1].encode()
        assert line[self.start : self.end].decode() == self.before, (self, line)
        lines[self.line - 1] = (line[: self.start] + by.encode() + line[self.end :]).decode()
        return "".join(lines)


def changed(source: str, node: ast.expr) -> Iterator[str]:
    """What could stand in the place of an expression."""
    match node:
        case ast.Compare(ops=[op], left=left, comparators=[right]) if type(op) in SWAPPED:
            yield swapped(source, left, right, op)
        case ast.BinOp(op=op, left=left, right=right) if type(op) in SWAPPED:
            yield swapped(source, left, right, op)
        case ast.BoolOp(op=op, values=[left, right]):
            yield swapped(source, left, right, op)
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            yield f"({ast.get_source_segment(source, operand)})"
        case ast.Constant(value=bool(value)):
            yield str(not value)
        case ast.Constant(value=int(value) | float(value)):
            yield repr(value + 1)


def swapped(source: str, left: ast.expr, right: ast.expr, op: ast.AST) -> str:
    _, after = SWAPPED[type(op)]
    sides = (ast.get_source_segment(source, side) for side in (left, right))
    return f"(({next(sides)}) {after} ({next(sides)}))"


def faults_of(file: Path, root: Path) -> Iterator[Fault]:
    """All that could be drawn in a file: code in functions, on one line each."""
    source, name = file.read_text(), str(file.relative_to(root))
    tree = ast.parse(source)
    inside, skipped = lines_of_functions(tree), places_skipped(tree)
    for node in ast.walk(tree):
        if not isinstance(node, ast.expr | ast.stmt) or node.lineno != node.end_lineno:
            continue
        if node.lineno not in inside or (node.lineno, node.col_offset) in skipped:
            continue
        place = (name, node.lineno, node.col_offset, node.end_col_offset or 0)
        text = ast.get_source_segment(source, node) or ""
        match node:
            case ast.Return(value=ast.expr() as value) if not is_none(value):
                inner = (name, value.lineno, value.col_offset, value.end_col_offset or 0)
                yield Fault(*inner, ast.get_source_segment(source, value) or "", "None", False)
            case ast.Expr(value=ast.Call()) | ast.AugAssign():
                yield Fault(*place, text, "pass", True)
            case ast.expr():
                for after in changed(source, node):
                    yield Fault(*place, text, after, False)


def lines_of_functions(tree: ast.AST) -> set[int]:
    lines: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            lines |= {*range(node.body[0].lineno, node.end_lineno or 0)}
    return lines


def places_skipped(tree: ast.AST) -> set[tuple[int, int]]:
    """(line, column) of what is no code of its own: f-strings, patterns, annotations, docs."""
    roots: list[ast.AST | None] = []
    for node in ast.walk(tree):
        match node:
            case ast.JoinedStr():
                roots.append(node)
            case ast.match_case(pattern=pattern):
                roots.append(pattern)
            case ast.arg(annotation=annotation) | ast.AnnAssign(annotation=annotation):
                roots.append(annotation)
            case ast.FunctionDef(returns=returns):
                roots.append(returns)
    inner = (node for root in roots if root is not None for node in ast.walk(root))
    return {(node.lineno, node.col_offset) for node in inner if hasattr(node, "lineno")}


def is_none(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is None


def compiles(fault: Fault, root: Path) -> bool:
    text = (root / fault.file).read_text()
    try:
        compile(fault.apply(text), fault.file, "exec")
        compile(fault.mark(text, 0), fault.file, "exec")
    except SyntaxError:
        return False
    return True


def draw(root: Path, count: int, seed: int) -> list[Fault]:
    """Lines uniformly among those that offer a fault, then one of the line's faults."""
    files = sorted(file for room in PRODUCT for file in (root / room).rglob("*.py"))
    by_line: dict[tuple[str, int], list[Fault]] = {}
    for file in files:
        for fault in faults_of(file, root):
            by_line.setdefault((fault.file, fault.line), []).append(fault)
    source = random.Random(seed)
    order = source.sample(sorted(by_line), len(by_line))
    drawn = (source.choice(by_line[line]) for line in order)
    kept = (fault for fault in drawn if compiles(fault, root))
    return [next(kept) for _ in range(count)]


def log_of(tree: Path) -> Path:
    return tree.resolve() / ".venv" / "reached"


def hook_of(tree: Path) -> Path:
    (packages,) = (tree / ".venv" / "lib").glob("python3.*/site-packages")
    return packages / "reached.pth"


def mark(faults: list[Fault], tree: Path) -> None:
    """Each fault's place notes who reaches it, in every process of the tree's environment."""
    log_of(tree).touch()
    log_of(tree).chmod(0o666)  # tests run as other users too
    module = hook_of(tree).with_name("_reached.py")
    module.write_text(PTH.format(log=str(log_of(tree))))
    hook_of(tree).write_text("import _reached\n")
    numbered = sorted(enumerate(faults), key=lambda pair: (pair[1].line, -pair[1].start))
    for number, fault in numbered:
        file = tree / fault.file
        file.write_text(fault.mark(file.read_text(), number))


def restore(tree: Path) -> None:
    subprocess.run(["git", "-C", tree, "checkout", "--quiet", "--", *PRODUCT], check=True)
    for file in (hook_of(tree), hook_of(tree).with_name("_reached.py")):
        file.unlink(missing_ok=True)


def reached(tree: Path) -> dict[int, set[str]]:
    found: dict[int, set[str]] = {}
    for line in log_of(tree).read_text().splitlines():
        number, _, test = line.partition("\t")
        if test:
            found.setdefault(int(number), set()).add(test)
    return found


def seconds_of(reports: list[Path]) -> dict[str, float]:
    """Seconds of each test, by `key_of` its id."""
    found: dict[str, float] = {}
    for report in reports:
        for case in xml.parse(report).iter("testcase"):
            key = f"{case.get('classname')}.{case.get('name')}"
            found[key] = float(case.get("time") or 0)
    return found


def key_of(test: str) -> str:
    """A test's id as junit's files name it."""
    path, _, name = test.partition("::")
    return f"{path.removesuffix('.py').replace('/', '.')}.{name.replace('::', '.')}"


def batches(tests: list[str], seconds: dict[str, float]) -> Iterator[list[str]]:
    batch, sum_so_far, most = [], 0.0, BATCH_SECONDS / 4
    for test in sorted(tests, key=lambda test: (seconds.get(key_of(test), 0.0), test)):
        batch.append(test)
        sum_so_far += seconds.get(key_of(test), 0.0) + 0.02
        if sum_so_far > most:
            yield batch
            batch, sum_so_far, most = [], 0.0, BATCH_SECONDS
    if batch:
        yield batch


def failed(tree: Path, tests: list[str], limit: float) -> list[str]:
    """The first test that fails, or what stands for it where pytest itself cannot start."""
    arguments = tree / ".venv" / "tests-of-a-fault"
    arguments.write_text("\n".join(tests) + "\n")
    command = [tree / ".venv/bin/python", "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider"]
    try:
        done = subprocess.run(
            [*command, "-p", "no:randomly", f"@{arguments}"],
            cwd=tree,
            capture_output=True,
            text=True,
            timeout=max(limit, 1.0),
            env={**os.environ, "OMP_NUM_THREADS": "1"},
        )
    except subprocess.TimeoutExpired:
        return []
    if done.returncode == 0:
        return []
    if done.returncode < 0 or "ERROR: not found: " in done.stdout + done.stderr:
        raise RuntimeError(f"pytest was ended, or does not know these tests:\n{done.stdout[-500:]}")
    named = re.findall(r"^(?:FAILED|ERROR) (\S+(?: ?[^\n]*?\])?)(?: - .*)?$", done.stdout, re.M)
    return named[:1] or [f"pytest ended with {done.returncode}"]


def found_by(fault: Fault, tree: Path, tests: list[str], seconds: dict[str, float]) -> str:
    """The test that finds it, or why there is none."""
    file = tree / fault.file
    sound, started = file.read_text(), time.monotonic()
    broken = fault.apply(sound)
    for batch in batches(tests, seconds):
        asked = batch
        while asked:
            left = LIMIT_SECONDS - (time.monotonic() - started)
            if left <= 0:
                return f"not found in {LIMIT_SECONDS:.0f} s"
            file.write_text(broken)
            try:
                first = failed(tree, asked, left)
            finally:
                file.write_text(sound)
            if not first:
                break
            if first[0] not in asked or not failed(tree, first, LIMIT_SECONDS):
                return first[0]
            asked = [test for test in asked if test != first[0]]  # it fails without it too
    return "not found" if tests else "not reached"


def find(faults: list[Fault], tree: Path, results: Path, reports: list[Path]) -> None:
    seconds, reach = seconds_of(reports), reached(tree)
    done = {row["number"] for row in read(results)} if results.exists() else set()
    for number, fault in enumerate(faults):
        if number in done:
            continue
        tests = sorted(test for test in reach.get(number, ()) if key_of(test) in seconds)
        by = found_by(fault, tree, tests, seconds)
        row = {"number": number, "reached_by": len(tests), "found": by, **asdict(fault)}
        with results.open("a") as file:
            file.write(json.dumps(row) + "\n")
        print(number, len(tests), by, f"{fault.file}:{fault.line}", flush=True)


def again(before: Path, tree: Path, results: Path) -> None:
    done = {row["number"] for row in read(results)} if results.exists() else set()
    names = {each.name for each in fields(Fault)}
    for row in read(before):
        if row["number"] in done or not is_found(row):
            continue
        fault = Fault(**{name: row[name] for name in names})  # type: ignore[arg-type]
        file, test = tree / fault.file, str(row["found"])
        sound = file.read_text()
        file.write_text(fault.apply(sound))
        try:
            by = failed(tree, [test], LIMIT_SECONDS) or [f"not found by {test}"]
        finally:
            file.write_text(sound)
        with results.open("a") as out:
            out.write(json.dumps({**row, "found": by[0]}) + "\n")
        print(row["number"], by[0], flush=True)


def is_found(row: dict[str, object]) -> bool:
    return not str(row["found"]).startswith("not ")


def compare(before: Path, after: Path, reports: list[Path]) -> None:
    """Found before and after, paired; and after by the tests of the first tier alone."""
    first_tier = seconds_of(reports)
    was = {row["number"]: row for row in read(before)}
    now = {row["number"]: row for row in read(after)}
    pairs = [(row, now[number]) for number, row in sorted(was.items()) if number in now]
    print(f"before {sum(is_found(row) for row in was.values())} of {len(was)}")
    print(f"after {sum(is_found(row) for row in now.values())} of {len(now)}")
    print(f"by {len(first_tier)} tests", end=" ")
    print(sum(is_found(r) and key_of(r["found"]) in first_tier for r in now.values()))
    for old, new in pairs:
        if is_found(old) != is_found(new):
            print(f"{old['file']}:{old['line']} before: {old['found']}; after: {new['found']}")


def read(file: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in file.read_text().splitlines()]


def faults_in(file: Path) -> list[Fault]:
    return [Fault(**row) for row in read(file)]  # type: ignore[arg-type]


def parsed(words: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    commands = parser.add_subparsers(dest="command", required=True)
    for name in ("draw", "mark", "restore", "find", "again", "compare"):
        command = commands.add_parser(name)
        if name == "draw":
            command.add_argument("--count", type=int, default=40)
            command.add_argument("--seed", type=int, default=0)
        if name in ("draw", "mark", "find"):
            command.add_argument("faults", type=Path)
        if name == "again":
            command.add_argument("before", type=Path)
        if name in ("mark", "restore", "find", "again"):
            command.add_argument("tree", type=Path)
        if name in ("find", "again"):
            command.add_argument("results", type=Path)
        if name == "compare":
            command.add_argument("before", type=Path)
            command.add_argument("after", type=Path)
        if name in ("find", "compare"):
            command.add_argument("--seconds", type=Path, nargs="+", required=True)
    return parser.parse_args(words)


def main(words: list[str] | None = None) -> None:
    asked = parsed(words)
    match asked.command:
        case "draw":
            drawn = draw(ROOT, asked.count, asked.seed)
            asked.faults.write_text("".join(json.dumps(asdict(f)) + "\n" for f in drawn))
        case "mark":
            mark(faults_in(asked.faults), asked.tree)
        case "restore":
            restore(asked.tree)
        case "find":
            find(faults_in(asked.faults), asked.tree.resolve(), asked.results, asked.seconds)
        case "again":
            again(asked.before, asked.tree.resolve(), asked.results)
        case "compare":
            compare(asked.before, asked.after, asked.seconds)


if __name__ == "__main__":
    main()
