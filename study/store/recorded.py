"""What a study's file records of it, beside its spec."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from trainables.kinds import NOUNS, count_of, too_few
from trainables.plain import Plain, Record


@dataclass(frozen=True)
class Home(Record):
    """Where a study lies. A copy does not share the inode."""

    path: str
    inode: int


@dataclass(frozen=True)
class Opened(Record):
    """How often a study's test split was opened, and in which confirmation: maybe itself.

    seeds: the trials of each label before the first opening, of a study that confirms itself.
    """

    name: str
    openings: int
    seeds: dict[str, int] | None = None


@dataclass(frozen=True)
class Stacked(Record):
    """How many trials are trained as one program at most, and on which device: cpu or gpu.

    slots: trials that fitted at once, where `auto` decided by it.
    """

    trials: int
    device: str
    slots: int | None = None


FIRST = 2  # seeds of each model, before a race gives out others
LEAST = 5  # of the model taken, and of cross-entropy's default: two tell hardly how much they vary


@dataclass(frozen=True)
class Race(Record):
    """How the seeds of a confirmation are given out.

    until: by how much another model may be better, in units of what matters. at_most: seeds of one.
    at_once: seeds between two decisions. trainings: of all together; None: no limit. also: labels
    that get as many seeds as the model taken. least: seeds of the model taken.
    """

    until: float = 0.25
    at_most: int = 12
    at_once: int = 1
    trainings: int | None = None
    also: list[str] = field(default_factory=list)
    least: int = FIRST  # of a race that began before this was recorded


@dataclass(frozen=True)
class Recorded(Record):
    """The facts of a study; one that was not run has none."""

    parts: ClassVar = {"home": Home, "confirmation": Opened, "stack": Stacked, "race": Race}
    always: ClassVar = "tracking"
    id: str = ""
    created: str = ""  # when, in ISO 8601
    data_digest: str = ""
    classes: list[str] = field(default_factory=list)
    sizes: dict[str, int] = field(default_factory=dict)  # samples of each split
    versions: dict[str, str] = field(default_factory=dict)
    meaning: dict[str, Plain] = field(default_factory=dict)
    stack: Stacked | None = None  # None: each trial is trained alone
    serves: str | None = None
    temperature_fit: str | None = None
    majority: float | None = None  # the share of the most frequent class
    groups: dict[str, int] | None = None  # of each split, if samples belong together
    # That shows that a trial does not guess, where rows belong together.
    least_accuracy: float | None = None
    unit: str | None = None  # what the groups are called: patients
    shared: list[str] | None = None  # a sentence for each two splits that share groups
    kind: str | None = None  # of samples; None: images
    marked: bool | None = None  # images with masks; None: without
    rows: dict[str, int] | None = None  # of predictions in each split, of images with masks
    weights: dict[str, str] | None = None  # names, by sha256, of those that trials start from
    home: Home | None = None
    adoptions: int | None = None  # how often a copy went on, as a ledger elsewhere counts
    tracking: str | None = None
    ledger_made: bool | None = None  # once it is; it is then never made again
    kept_by_other_rules: bool | None = None  # models, of a front that was another
    pruned: bool | None = None  # models are gone on purpose: `calstudy slim`
    confirmation: Opened | None = None  # before the first opening of test
    matters_at_opening: dict[str, float] | None = None  # in each objective, at the first one
    calibrators_at_opening: list[str] | None = None  # scored on test: named before the first one
    race: Race | None = None  # of a confirmation; None: each row has as many seeds

    def unit_in(self, split: str) -> str | None:
        """What the groups of a split are called; None where each sample is by itself."""
        if self.groups is None or self.groups.get(split) in (None, self.measured(split)):
            return None
        return self.unit or "groups"

    @property
    def noun(self) -> str:
        """What its samples are called: images, or rows."""
        return NOUNS[self.kind or "image"]

    @property
    def called(self) -> str:
        """What a table calls its samples: samples; images where each pixel has a class."""
        return self.noun if self.marked else "samples"

    def measured(self, split: str) -> int:
        """How many predictions the metrics of a split are of: its samples, or pixels of them."""
        return self.sizes[split] if self.rows is None else self.rows[split]

    @property
    def counted(self) -> str:
        """What its metrics are means over: samples, or pixels."""
        return "pixels" if self.marked else "samples"

    def shown(self, split: str) -> str:
        """`360 validation samples (36 patients)`; with masks `101 test images (9,696 pixels)`."""
        return f"{self.sizes[split]:,} {split} {self.called}{self.in_groups(split)}"

    def sizes_of(self, split: str) -> list[str]:
        """`360 samples`, `36 patients`; with masks `101 images`, `9,696 pixels`."""
        return [count_of(self.sizes[split], self.called), *self._beside(split)]

    @property
    def all_sizes(self) -> str:
        """`train 1,437 (40 patients); validation 360 (10 patients)`, of every split."""
        return "; ".join(
            f"{split} {size:,}{self.in_groups(split)}" for split, size in self.sizes.items()
        )

    def units(self, split: str) -> tuple[int, str]:
        """How many independent units a split has, and what they are called: groups, or samples."""
        if self.groups is None:
            return self.sizes[split], self.noun
        return self.groups[split], str(self.unit)

    def resampled(self, split: str) -> str:
        """What intervals on a split resample: `214 patients`, or `360 images`."""
        return count_of(*self.units(split))

    def in_groups(self, split: str) -> str:
        """` (214 patients)`, beside the samples of a split; empty if each is by itself.

        With masks ` (9,696 pixels)`, or ` (9,696 pixels, 12 patients)`.
        """
        found = self._beside(split)
        return f" ({', '.join(found)})" if found else ""

    def _beside(self, split: str) -> list[str]:
        """What is said beside the samples of a split: pixels that are measured, and groups."""
        found = []
        if self.rows is not None and split != "train":
            found.append(count_of(self.rows[split], "pixels"))
        if self.groups is not None and not (self.marked and self.unit == self.noun):
            found.append(self.resampled(split))
        return found

    def in_bins(self, split: str) -> tuple[str, str | None, str]:
        """`shown`, `unit_in` and `counted` of a split: what a diagram of its bins says."""
        return self.shown(split), self.unit_in(split), self.counted

    def too_few(self, split: str) -> str:
        """Why a split has no intervals, as `trainables.kinds.too_few` says it; else empty."""
        return too_few(*self.units(split))
