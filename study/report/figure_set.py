"""All figures that a study's files allow; a one-line reason for each of the others."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from matplotlib.figure import Figure

from study.analysis.importance import Searched, revalued, searched
from study.analysis.left_out import left_out_of
from study.analysis.pareto import measured_in
from study.analysis.progression import Growth, History, growth, recorded
from study.analysis.ranking import Ranking, excluded_line
from study.analysis.repeats import best_of, typical
from study.answer.choice import choose
from study.answer.confirmation import results_of
from study.report import epoch_figures, figures
from study.report.front_figure import draw_front
from study.report.style import HEADINGS, our_settings, save, styles_of
from study.store.files import stored_history, stored_predictions
from study.store.study import StudyFolder
from study.store.trials import TrialRecord, Trials
from study.uncertainty.bootstrap import Analysis, analyse
from trainables.files.atomic import write_whole
from trainables.problems import FieldError, nearest

UNDIAGNOSED = "it was not recorded; set `diagnostics: true` in the study."
# A file's stem, and what it shows: a figure, or a PNG whatever the format.
Drawn = Iterator[tuple[str, Figure | bytes]]
MAPS = "maps"  # of images with masks alone


@dataclass(frozen=True)
class Gallery:
    """A study to draw. trial: whose reliability is shown, e.g. `focal/0007`; default the
    model to take.

    resamples, level: of the front's intervals; 0 resamples: none. absent: messages on what was left
    out of a figure that is drawn.
    """

    study: StudyFolder
    records: Trials
    trial: str | None = None
    resamples: int = 0
    level: float = 0.95
    absent: list[str] = field(default_factory=list)

    @cached_property
    def complete(self) -> Trials:
        """Complete trials that have the objectives, without labels that have none."""
        found = {}
        for label, done in self.records.complete.by_label.items():
            if measured := measured_in(done, self.study.objectives):
                found[label] = measured
        return Trials(found)

    @cached_property
    def ranking(self) -> Ranking:
        return Ranking(self.study, self.records)

    @property
    def front(self) -> list[TrialRecord]:
        return self.ranking.front

    @cached_property
    def taken(self) -> TrialRecord | None:
        """The trial of the search that the answer takes; None: no answer yet, or a default."""
        try:
            name = choose(results_of(self.study)).names["trial"]
        except FieldError:
            return None
        return next((record for record in self.records if record.name == name), None)

    @cached_property
    def analysis(self) -> Analysis | None:
        """Intervals of the objectives, and shares; None if unavailable: `absent` has the reason."""
        wanted = [objective.metric for objective in self.study.objectives]
        try:
            if not self.resamples:
                return None
            aside = self.ranking.excluded
            left_out = left_out_of(self.study, self.complete, self.front)
            kept = left_out.kept(self.complete)
            if kept:
                self.absent.extend(f"bars of the front: {line}" for line in left_out.lines)
            # Of none it raises what is wrong with the first.
            trials = kept or self.complete
            return analyse(
                self.study, trials, self.resamples, wanted, level=self.level, aside=aside
            )
        except FieldError as error:
            self.absent.append(f"intervals of the Pareto front: {error}")
            return None

    @cached_property
    def histories(self) -> dict[str, History]:
        """Each label's best trial's history; `absent` names those that cannot be read."""
        read = {label: self._read([best_of(self.ranking, label)]) for label in self.complete.labels}
        return {label: found[0] for label, found in read.items() if found}

    @cached_property
    def repeats(self) -> dict[str, list[History]]:
        """Each label's histories: of all seeds, or of the best trial of a search; see `absent`."""
        read = {label: self._read(records) for label, records in typical(self.ranking).items()}
        return {label: found for label, found in read.items() if found}

    def _read(self, records: list[TrialRecord]) -> list[History]:
        """The histories that can be read; `absent` names the others, each once."""
        found: list[History] = []
        for record in records:
            try:
                found.append(stored_history(self.study, record))
            except FieldError as error:
                if str(error) not in self.absent:
                    self.absent.append(str(error))
        return found

    @cached_property
    def growths(self) -> tuple[Growth, dict[str, Growth]]:
        """Hypervolume over the whole study, and over each method with a complete trial."""
        of_each = {label: growth(self.ranking, label) for label in self.complete.labels}
        return growth(self.ranking), of_each

    @cached_property
    def searched(self) -> dict[str, Searched]:
        """The values tried by the complete trials of each method that searched any."""
        study = self.study
        trials = study.reader.unchecked.trials()
        found = {}
        for label, done in self.complete.by_label.items():
            known = {record.number for record in done}  # a driver may have recorded more since
            of_label = [trial for trial in trials[label] if trial.number in known]
            if study.given is not None:
                of_label = revalued(of_label, done, study.objectives)
            found[label] = searched(of_label, study.objectives)
        return {label: each for label, each in found.items() if each.values}

    @property
    def chosen(self) -> str:
        """The words for captions: which trial of a method is shown."""
        return f"the best trial by {self.study.objectives[0].metric}"

    def styles(self) -> dict[str, tuple[str, str]]:
        """Line styles; methods on the front come first if there are more methods than colours."""
        return figures.line_styles(self.records.labels, [record.label for record in self.front])

    def with_recorded(self, name: str) -> dict[str, History]:
        return {
            label: history for label, history in self.histories.items() if recorded(history, name)
        }

    def repeats_with(self, name: str) -> dict[str, list[History]]:
        """Of each label the repeats that recorded it, if any did."""
        kept = {
            label: [history for history in found if recorded(history, name)]
            for label, found in self.repeats.items()
        }
        return {label: found for label, found in kept.items() if found}


@our_settings()
def draw(
    gallery: Gallery, folder: Path, suffix: str, only: str | None = None
) -> tuple[list[Path], list[str]]:
    """Write the figures, or `only` one; returns the files, and the reasons for those not drawn."""
    if only is not None and only not in FIGURES:
        raise FieldError("--only", f"there is no figure '{only}'", nearest(only, list(FIGURES)))
    written: list[Path] = []
    reasons: list[str] = []
    drawn = [name for name in FIGURES if name != MAPS or gallery.study.recorded.marked]
    for name in drawn if only is None else [only]:
        try:
            for stem, figure in FIGURES[name](gallery):
                folder.mkdir(parents=folder.parent != gallery.study.directory, exist_ok=True)
                file = folder / f"{stem}.{suffix}"
                if isinstance(figure, bytes):
                    file = file.with_suffix(".png")
                    write_whole(file, figure)
                else:
                    save(figure, file)
                written.append(file)
        except FieldError as error:
            reasons.append(f"{name}: {error}")
    return written, [*reasons, *gallery.absent]


# ---- each figure ---------------------------------------------------------------------------------


def _front(gallery: Gallery) -> Drawn:
    study = gallery.study
    figure = draw_front(
        gallery.records,
        study.objectives,
        study.title,
        study.recorded.shown("validation"),
        gallery.analysis,
        gallery.taken,
        gallery.ranking.excluded,
        study.recorded.too_few("validation"),
        gallery.ranking.stands_for,
    )
    yield "front", figure


def _reliability(gallery: Gallery) -> Drawn:
    from study.uncertainty.reliability import diagram

    record = _chosen(gallery)
    predictions = stored_predictions(gallery.study, record)
    found = diagram(predictions)
    title = f"{gallery.study.title}: {record.name}"
    panels = dict(zip(HEADINGS, (found.raw, found.scaled), strict=True))
    units = gallery.study.recorded.in_bins("validation")
    figure = figures.draw_reliability(panels, title, len(predictions.arrays.labels), *units)
    yield f"reliability-{record.label}-{record.number:04d}", figure


def _chosen(gallery: Gallery) -> TrialRecord:
    if gallery.trial is None:
        return gallery.taken or _front_of(gallery)[0]
    return gallery.records.named(gallery.trial, "--trial")


def _front_of(gallery: Gallery) -> list[TrialRecord]:
    if not gallery.front:
        raise FieldError(
            gallery.study.name, excluded_line(gallery.ranking.excluded) or "no complete trial"
        )
    return gallery.front


def _hypervolume(gallery: Gallery) -> Drawn:
    _front_of(gallery)
    reference = gallery.ranking.reference_values()
    figure = figures.draw_growth(*gallery.growths, gallery.styles(), gallery.study.title, reference)
    yield "hypervolume", figure


def _hyperparameters(gallery: Gallery) -> Drawn:
    study = gallery.study
    front = _front_of(gallery)
    styles = styles_of(gallery.records.labels)
    if not gallery.searched:
        raise FieldError(study.name, "no method searched a hyperparameter")
    for label, found in gallery.searched.items():
        done = gallery.complete.of(label)
        title = f"{study.title}: {label}"
        figure = figures.draw_searched(
            found, done, front, study.objectives, styles[label], title, gallery.taken
        )
        yield f"hyperparameters-{label}", figure


def _gamma(gallery: Gallery) -> Drawn:
    histories = gallery.with_recorded("gamma_q50")
    if not histories:
        raise FieldError(gallery.study.name, "no method learned a gamma (gamma_net does)")
    title = gallery.study.title
    yield "gamma", epoch_figures.draw_gamma(histories, gallery.styles(), title, gallery.chosen)


def _by_epoch(
    stem: str, drawing: Callable[..., Figure], recorded_as: str, absent: str
) -> Callable[[Gallery], Drawn]:
    """A figure of per-epoch values, over the seeds of methods without a search."""

    def figure(gallery: Gallery) -> Drawn:
        lines = gallery.repeats_with(recorded_as)
        if not lines:
            raise FieldError(gallery.study.name, absent)
        yield stem, drawing(lines, gallery.styles(), gallery.study.title, gallery.chosen)

    return figure


def _norms(gallery: Gallery) -> Drawn:
    yield from _by_epoch("norms", epoch_figures.draw_norms, "head_norm", UNDIAGNOSED)(gallery)
    known = gallery.repeats_with("feature_norm")
    if without := [label for label in gallery.repeats_with("head_norm") if label not in known]:
        gallery.absent.append(
            f"norms: the features of {', '.join(without)}: the version that trained them did not"
            " record their norm"
        )


def _maps(gallery: Gallery) -> Drawn:
    study = gallery.study
    if not study.recorded.marked:
        raise FieldError(study.name, "its images have no masks")
    from study.report.maps import answered, maps_of

    if gallery.trial is None:
        owner, record = answered(study, gallery.front)
    else:
        owner = study
        record = _chosen(gallery)
    for place, found in enumerate(maps_of(owner, record), start=1):
        yield f"map-{place}", found.png


FIGURES: dict[str, Callable[[Gallery], Drawn]] = {
    "front": _front,
    "reliability": _reliability,
    "hypervolume": _hypervolume,
    "hyperparameters": _hyperparameters,
    "gamma": _gamma,
    "learning": _by_epoch(
        "learning", epoch_figures.draw_learning, "nll", "no complete trial with a history"
    ),
    "entropy": _by_epoch("entropy", epoch_figures.draw_entropy, "entropy_right", UNDIAGNOSED),
    "norms": _norms,
    MAPS: _maps,
}
