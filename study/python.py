"""A study in a script or a notebook: `from study import Study`. See docs/python.md."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from study.store import study as store
from study.store.files import HISTORY, checked_file, stored_predictions
from study.store.history import read_history
from study.store.openings import tested_predictions
from study.store.recorded import Recorded
from trainables.problems import FieldError, nearest

if TYPE_CHECKING:
    import pandas

    from trainables.outputs.predictions import Predictions

SPLITS = ("validation", "test")  # whose predictions are kept


class Study(store.Study):
    """A study on disk, with its trials as pandas DataFrames.

    Everything read here is from the validation split; only `calstudy confirm` opens the test split.
    """

    @classmethod
    def open(cls, study: str | Path, storage: str | Path | None = None) -> Study:
        """The study in a directory, of a spec that was run, or with that name under the storage.

        storage: default: $CALSTUDY_STORAGE, else ./studies. Raises SpecError if there is none.
        """
        found = store.open_study(str(study), _text(storage))
        return cls(found.directory, found.plain, found.recorded)

    @classmethod
    def from_spec(cls, spec: str | Path, storage: str | Path | None = None) -> Study:
        """The study of a spec, run or not yet. Raises SpecError if the spec is invalid."""
        read, opened = store.spec_and_study(Path(spec), _text(storage))
        root = store.storage_root(_text(storage), read.storage)
        if begun := store.reopened(root / read.name, opened):
            found = cls(begun.directory, begun.plain, begun.recorded)
            found.__dict__["spec"] = read  # `run` continues with what the file says now
            return found
        made = cls.of(root / read.name, read, Recorded())
        return cls(made.directory, made.plain, made.recorded)

    def trials(self) -> pandas.DataFrame:
        """One row per trial, in any state: trial, method, number, state, front; each searched value
        by its path; each metric of the result; epoch, samples, seconds, attempts, started, ended,
        device, training, reason.

        Trials not proposed yet have no row. Times are UTC. `seconds` and `samples` count training
        only. A value that a trial lacks is missing.
        """
        import pandas

        from study.analysis.trial_rows import trial_rows

        frame = pandas.DataFrame(trial_rows(self))
        for column in ("started", "ended"):
            if column in frame:
                frame[column] = pandas.to_datetime(frame[column], unit="s", utc=True)
        return frame

    def epochs(self) -> pandas.DataFrame:
        """One row per epoch of each finished trial: trial, method, number, epoch, time (UTC),
        seconds, samples, train_loss (the mean over batches), and the validation metrics of each
        epoch.

        Raises FieldError if a history is missing or altered.
        """
        import pandas

        rows = []
        for record in self.records():
            if HISTORY in record.digests:
                history = read_history(checked_file(self, record, HISTORY), record.name)
                named = {"trial": record.name, "method": record.label, "number": record.number}
                rows += [named | row for row in history]
        frame = pandas.DataFrame(rows)
        if "time" in frame:
            frame["time"] = pandas.to_datetime(frame["time"], unit="s", utc=True)
        return frame

    def front(self) -> pandas.DataFrame:
        """The rows of `trials` on the Pareto front, best by the first objective first."""
        from study.analysis.ranking import Ranking

        names = [record.name for record in Ranking(self, self.records()).front]
        frame = self.trials()
        if frame.empty:
            return frame
        return frame.set_index("trial", drop=False).loc[names].reset_index(drop=True)

    def predictions(self, trial: str, split: str = "validation") -> Predictions:
        """Logits [N, K] and labels [N] of a complete trial: `focal/0007`.

        split: `test` reads what `calstudy confirm` wrote of a confirmation's trial when it opened
        the test split; it opens nothing itself. Raises FieldError if there is no such trial, if it
        was not measured on test, or if the file is missing or altered.
        """
        record = self.records().named(trial, "trial")
        if split not in SPLITS:
            raise FieldError("split", f"there is no split '{split}'", nearest(split, SPLITS))
        if split == "test":
            return tested_predictions(self, record)
        return stored_predictions(self, record)

    def run(self, address: str | None = None) -> Study:
        """Run the missing trials, as `calstudy run` does; returns the study as it then is.

        address: a Ray cluster; default: this machine, with the CPUs that Slurm, a cgroup or the
        affinity leave us; for fewer or more use `calstudy run --cpus`. Ctrl-C stops it in order, as
        long as that takes: unlike the command, it never ends your process.
        """
        from study.engine.run import run_study
        from study.terminal.console import SafeConsole
        from study.terminal.display import ConsoleDisplay

        display = ConsoleDisplay(SafeConsole(markup=False))
        outcome = run_study(self.spec, self.name, self.directory.parent, None, address, display)
        return type(self).open(outcome.study.directory)

    def __repr__(self) -> str:
        from study.analysis.states import in_words, snapshot, summed

        states = in_words(summed(snapshot(self).counts.values())) if self.id else "not run yet"
        return f"Study({self.name!r}: {states}; {self.directory})"


def _text(path: str | Path | None) -> str | None:
    return None if path is None else str(path)
