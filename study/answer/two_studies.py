"""Two studies side by side: what differs in their specs, their answers, and, where the validation
data are the same, their fronts and the two models that they take."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

from search_spaces import strict_yaml
from study.analysis.pareto import Costs, front, hypervolume
from study.analysis.ranking import excluded_line
from study.answer.answer import answer
from study.answer.confirmation import Results, results_of
from study.answer.said import Answer
from study.schema.arguments import ABSENT, differing
from study.schema.compatibility import methods_in
from study.schema.objective import Objective, read_objectives
from study.store.files import stored_predictions
from study.store.other_objectives import listed
from study.store.study import StudyFolder
from study.store.with_objectives import with_objectives
from study.uncertainty.bootstrap import RESAMPLES, Difference, compare
from study.uncertainty.resampling import differs
from trainables.plain import Plain
from trainables.problems import FieldError

if TYPE_CHECKING:
    from study.store.trials import TrialRecord

# Keys of a study that decide which samples are its validation split.
OF_THE_SPLIT = ("data", "seed")
NOT_OF_THE_SPLIT = ("data.augment",)


@dataclass(frozen=True)
class Side:
    """One of the two, by the objectives compared."""

    name: str  # or its folder, where both have one name
    results: Results
    said: Answer

    @property
    def study(self) -> StudyFolder:
        return self.results.study

    @property
    def front(self) -> list[TrialRecord]:
        return self.results.ranking.front

    @property
    def taken(self) -> str | None:
        """The trial of the search that its answer takes, or whose settings it has."""
        return self.said.trial


@dataclass(frozen=True)
class Pair:
    """Two studies compared.

    apart: why their validation data are not the same; empty where they are. between: the first
    answer's model less the other's on them, by metric. uncompared: why that is absent.
    """

    one: Side
    other: Side
    differences: Mapping[str, tuple[str, str]]
    apart: str = ""
    between: Mapping[str, Difference] = field(default_factory=dict)
    uncompared: str = ""

    @property
    def sides(self) -> tuple[Side, Side]:
        return self.one, self.other

    @property
    def objectives(self) -> tuple[Objective, ...]:
        return self.one.study.objectives

    @property
    def afterwards(self) -> list[str]:
        """What is said of objectives given afterwards; whose they are, unless of both alike."""
        lines = {side.name: side.study.afterwards for side in self.sides}
        if len(set(lines.values())) == 1:
            return [line for line in set(lines.values()) if line]
        return [f"{name}: {line}" for name, line in lines.items() if line]

    @cached_property
    def joint_front(self) -> list[TrialRecord]:
        """The trials of both fronts that none of either dominates."""
        return front([*self.one.front, *self.other.front], self.objectives)

    @cached_property
    def reference(self) -> Costs:
        """The hypervolumes' reference point: the worse of the two, in each objective."""
        names = [one.metric for one in self.objectives]
        both = []
        for side in self.sides:
            ranking = side.results.ranking
            known = [each.metric for each in side.study.objectives]
            of = dict(zip(known, ranking.reference, strict=True))
            both.append([of[name] for name in names])
        return tuple(map(max, *both))

    def reference_values(self) -> dict[str, float]:
        """The reference point in the metrics' own units."""
        pairs = zip(self.objectives, self.reference, strict=True)
        return {one.metric: one.sign * cost for one, cost in pairs}

    def hypervolume(self, side: Side) -> float:
        return hypervolume(side.front, self.objectives, self.reference)


def pair_of(
    one: StudyFolder, other: StudyFolder, objectives: str | Sequence[Objective] | None, level: float
) -> Pair:
    """The two compared; objectives: given afterwards, else those that both have.

    Raises FieldError for a study given twice, without a trial that counts, or if there is no such
    objective.
    """
    if one.directory.resolve() == other.directory.resolve() or one.id == other.id:
        raise FieldError("compare", f"{one.name} is given twice", "Name two studies.")
    if isinstance(objectives, str):
        objectives = read_objectives(objectives, "--objectives")
    wanted = objectives or common_objectives(one, other)
    names = [one.name, other.name]
    if one.name == other.name:
        names = [str(one.directory), str(other.directory)]
    first = _side(names[0], with_objectives(one, _for(one, wanted)), level)
    second = _side(names[1], with_objectives(other, _for(other, wanted)), level)
    differences = spec_differences(one, other)
    apart = why_apart(one, other, differences, names) or _other_samples(first, second)
    between: dict[str, Difference] = {}
    uncompared = ""
    if not apart:
        try:
            between = _between(first, second, level)
        except FieldError as error:  # lost predictions, or too few samples
            uncompared = str(error)
    return Pair(first, second, differences, apart, between, uncompared)


def common_objectives(one: StudyFolder, other: StudyFolder) -> tuple[Objective, ...]:
    """Those of the first study that the other has too. Raises FieldError for none."""
    common = tuple(each for each in one.own_objectives if each in other.own_objectives)
    if common:
        return common
    found = (
        f"{one.name} and {other.name} have no objective in common ({listed(one.own_objectives)};"
        f" {listed(other.own_objectives)})"
    )
    raise FieldError("compare", found, "Name some: --objectives accuracy,nll.")


def _for(study: StudyFolder, wanted: Sequence[Objective]) -> Sequence[Objective]:
    """A study's own, where they are the ones wanted in another order."""
    own = study.own_objectives
    return own if set(own) == set(wanted) else wanted


def _side(name: str, study: StudyFolder, level: float) -> Side:
    results = results_of(study)
    if study.confirms is None and not results.ranking.eligible:
        found = "has no complete trial that counts"
        aside = excluded_line(results.ranking.excluded)
        raise FieldError(study.name, found, aside or f"Run `{study.goes_on}`.")
    return Side(name, results, answer(results, level))


def spec_differences(one: StudyFolder, other: StudyFolder) -> dict[str, tuple[str, str]]:
    """What differs in the two specs as recorded, and in the ranges of methods that both have."""
    found = differing(_compared(one), _compared(other))
    first = methods_in(one.recorded.meaning)
    second = methods_in(other.recorded.meaning)
    for label in [label for label in first if label in second]:
        mine = first[label].space
        theirs = second[label].space
        for path in dict.fromkeys([*mine, *theirs]):
            if mine.get(path) != theirs.get(path):
                ranges = [strict_yaml.one_line(of.get(path, ABSENT)) for of in (mine, theirs)]
                found[f"methods.{label}: {path}"] = (ranges[0], ranges[1])
    return found


def _compared(study: StudyFolder) -> dict[str, Plain]:
    return {key: value for key, value in study.plain.items() if key not in ("name", "ledger")}


def why_apart(
    one: StudyFolder,
    other: StudyFolder,
    differences: Mapping[str, tuple[str, str]],
    names: Sequence[str],
) -> str:
    """Why the two have not the same validation samples; empty where they are the same bytes."""
    if one.recorded.classes != other.recorded.classes:
        counts = [len(study.recorded.classes) for study in (one, other)]
        if counts[0] != counts[1]:
            return f"{names[0]} has {counts[0]} classes, {names[1]} {counts[1]}"
        return "their classes have other names, or another order"
    digests = [study.recorded.data_digest for study in (one, other)]
    if digests[0] and digests[0] == digests[1]:
        return ""
    said = [
        f"{key} {first} in {names[0]}, {second} in {names[1]}"
        for key, (first, second) in differences.items()
        if key.partition(".")[0] in OF_THE_SPLIT and key not in NOT_OF_THE_SPLIT
    ]
    return "; ".join(said) or f"data digests {digests[0][:12]} and {digests[1][:12]}"


def _other_samples(one: Side, other: Side) -> str:
    """Why the samples differ though the data have one digest; empty where they do not, or where
    predictions are lost."""
    chosen = [side.said.choice for side in (one, other)]
    try:
        found = [stored_predictions(each.study, each.record) for each in chosen if each is not None]
    except FieldError:
        return ""
    what = differs(*found) if len(found) == len(chosen) else None
    return f"the {what} stored with their predictions" if what else ""


def _between(one: Side, other: Side, level: float) -> dict[str, Difference]:
    """The first answer's model less the other's, in the objectives, as deployed too, and NLL."""
    first = one.said.choice
    second = other.said.choice
    if first is None or second is None:
        missing = (one if first is None else other).name
        raise FieldError(missing, "its answer names no model")
    records = (first.record, second.record)
    found = compare(first.study, *records, RESAMPLES, level, beside=second.study)
    names: list[str] = []
    for study in (one.study, other.study):
        names += [each.metric for each in (*study.objectives, *study.served)]
    shown = dict.fromkeys([*names, "nll", "brier"])
    return {name: found[name] for name in shown if name in found}
