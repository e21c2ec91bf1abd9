"""Which method still beats a tuned cross-entropy? The page and its figure, from finished studies.

    calstudy run study/specs/race/newsgroups.yaml
    calstudy confirm race_newsgroups --each --pareto --seeds 12 \\
        $(python -m benchmarks.race.choosers studies/race_newsgroups)
    python -m benchmarks.race studies    # keeps what it needs of them, then remakes the page
    python -m benchmarks.race            # remakes it from what is kept, without training
    python -m benchmarks.race --again OTHER/race_newsgroups    # beside a second run of a study

Kept are benchmarks/results/race/NAME.json and .npz.xz. The tables go into docs/why/found.md,
between its marks, and the figure beside it. The confirmation also retrains what other ways of
choosing take.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from benchmarks.race import forest
from benchmarks.race.choosers import BUDGETS
from benchmarks.race.found import COMPARED, Cell, cells, decided, inside, regrets, words
from benchmarks.race.kept import Kept, keep
from study.schema.objective import RAW, plain_name
from study.uncertainty.words import AS_GOOD, BETTER, UNDECIDED, WORSE
from trainables.metrics import describe

ROOT = Path(__file__).parents[2]
KEPT = ROOT / "benchmarks" / "results" / "race"
PAGE = ROOT / "docs" / "why" / "found.md"
WORDS = (BETTER, AS_GOOD, WORSE, UNDECIDED)
Cells = dict[str, dict[str, Cell]]


def summary(found: dict[str, Cells]) -> str:
    """How many methods have which word, by race and metric."""
    lines = [f"| study | metric | {' | '.join(WORDS)} |", "|---|---|" + "---:|" * len(WORDS)]
    for race, of in found.items():
        for form in COMPARED.values():
            for metric in form:
                count = words(of[metric])
                lines.append(
                    f"| {race} | {heading(metric)} |"
                    f" {' | '.join(str(count[word]) for word in WORDS)} |"
                )
    return "\n".join(lines)


def heading(metric: str) -> str:
    after = " after T" if metric != plain_name(metric) else ""
    return f"{describe(metric).label}{after}"


def table(kept: Kept, of: Cells) -> str:
    """Each method less cross-entropy, in thousandths, with the cost of a training."""
    names = [metric for form in COMPARED.values() for metric in form]
    heads = [heading(name) for name in names]
    lines = [f"| method | {' | '.join(heads)} | CPU s |", "|---|" + "---|" * len(names) + "---:|"]
    seconds = kept.facts["seconds"]
    for label in kept.facts["best"]:
        row = [_cell(of[name][label]) if label in of[name] else "" for name in names]
        if not any(row):
            row = [_mean(kept, label, name) for name in names]
        cost = f"{seconds[label]:.1f}" if label in seconds else ""
        lines.append(f"| {label} | {' | '.join(row)} | {cost} |")
    return "\n".join(lines)


def _cell(cell: Cell) -> str:
    estimate, low, high = (1000 * value for value in cell.difference[:3])
    return f"{estimate:+.0f} ({low:+.0f}, {high:+.0f}) {cell.word}"


def _mean(kept: Kept, label: str, metric: str) -> str:
    """The value of cross-entropy itself."""
    place = 0 if metric in COMPARED[RAW] else 1
    seeds = [one[metric] for one in kept.row(kept.facts["best"][label][place])["test"]]
    return f"{1000 * sum(seeds) / len(seeds):.0f}"


def choices(kept: Kept) -> str:
    lines = [
        "| chosen by | trials of each method | trainings | taken | regret |",
        "|---|---:|---:|---|---|",
    ]
    for name, of in regrets(kept).items():
        for budget in BUDGETS:
            if budget in of:
                one = of[budget]
                estimate, low, high = one.regret[:3]
                lines.append(
                    f"| {name} | {budget} | {one.trainings} | {one.row} |"
                    f" {estimate:.1f} ({low:.1f}, {high:.1f}) |"
                )
    return "\n".join(lines)


def filled(page: str, tables: dict[str, str]) -> str:
    """The page with each table between its two marks."""
    for name, text in tables.items():
        begin, end = f"<!-- {name} -->\n", "<!-- end -->"
        before, found, rest = page.partition(begin)
        if not found:
            raise SystemExit(f"{PAGE} has no place for `{name}`: {begin}{end}")
        page = f"{before}{begin}{text}\n{end}{rest.partition(end)[2]}"
    return page


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.race",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("directory", type=Path, nargs="?", help="holds finished studies race_*")
    parser.add_argument("--again", type=Path, help="directory of a second run of one of them")
    parser.add_argument("--kept", type=Path, default=KEPT, help="default: %(default)s")
    options = parser.parse_args()
    if options.directory is not None and options.again is not None:
        parser.error("--again compares with what is kept, which DIRECTORY replaces. Run it first.")
    if options.directory is not None:
        for file in sorted(options.directory.glob("race_*-confirm/study.yaml")):
            search = options.directory / file.parent.name.removesuffix("-confirm")
            print(f"kept: {keep(search, options.kept)}")
    races = {
        one.stem.removeprefix("race_"): Kept.read(one)
        for one in sorted(options.kept.glob("*.json"))
    }
    found = {name: cells(kept) for name, kept in races.items()}
    tables = {"summary": summary(found)}
    for name, kept in races.items():
        tables |= {name: table(kept, found[name]), f"{name} choosers": choices(kept)}
        share = decided(found[name]["ts_nll"])
        print(
            f"{name}: {share:.0%} of methods decided in ts_nll; kept values off by {kept.off:.1g}"
        )
    PAGE.write_text(filled(PAGE.read_text(), tables))
    matters = {name: kept.facts["matters"] for name, kept in races.items()}
    forest.draw(PAGE.with_suffix(".png"), found, matters)
    forest.draw(PAGE.with_name("found_nll.png"), found, matters, ["nll"])  # for README
    print(f"written: {PAGE} and its figures")
    if options.again is not None:
        name = options.again.name.removeprefix("race_")
        second = Kept.read(keep(options.again, options.again.parent / "kept"))
        within = inside(found[name], cells(second))
        print(
            f"{name} again: {sum(within)} of {len(within)} differences in the first run's intervals"
        )


if __name__ == "__main__":
    main()
