"""A study in a script or a notebook: `calstudy.Study`. See docs/how-to/use-python.md."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from click import UsageError

from search_spaces import strict_yaml
from study.notebook.keys import parsed_keys
from study.notebook.places import Place
from study.notebook.process import run_command
from study.notebook.shown import (
    Answer,
    Figures,
    Plan,
    in_commas,
    level_of,
    served_words,
    text_or_none,
)
from study.schema.arguments import differing_lines
from study.schema.errors import SpecError
from study.store import study as store
from study.store.command_line import in_calls, option_words, retry_words
from study.store.confirmed import confirming_directory
from study.store.files import stored_predictions
from study.store.openings import tested_predictions
from study.store.recorded import Recorded
from trainables.problems import FieldError, UserError, nearest

if TYPE_CHECKING:
    import pandas

    from study.schema.spec import StudySpec
    from trainables.outputs.predictions import Predictions

SPLITS = ("validation", "test")  # whose predictions are kept


class Study:
    """A study: begun on disk, or to be run. Its trials are pandas DataFrames.

    Everything read here is from the validation split; only `confirm` opens the test split. What
    trains or registers runs in a process of its own. Ctrl-C, or interrupting the cell, stops it in
    order, and it ends if this process dies. Raises UserError for what the user can mend, TryAgain
    where calling it again goes on, and otherwise CommandFailed.
    """

    def __init__(self, directory: Path, spec: StudySpec | None, file_name: str = "") -> None:
        """spec: what `run` will run; None: what the study recorded."""
        self._directory = directory
        self._spec = spec
        self._file_name = file_name or f"{directory.name}.yaml"
        self._stored: store.StudyFolder | None = None

    @classmethod
    def create(cls, **keys: Any) -> Study:
        """The study of these keys, those of a study's YAML: name, data, model, methods, ...

        With equal keys it opens the study that has begun; else it raises SpecError with the lines
        that differ. Relative paths start at the working directory. `plan(explain=True)` lists every
        key.

        data: also objects, alone as `train` or in a dict of splits: a pair (samples, labels), a
        map-style data set of torch, or one of Hugging Face. model, methods, objectives: also your
        class, or your function of logits and labels. Both are written once, into the study's
        folder; else nothing is written before `run`.
        """
        made = cls.from_spec(keys)
        if (made._directory / "study.yaml").exists():
            was = store.open_directory(made._directory, made.name).spec.to_mapping()
            if lines := differing_lines(was, made.spec.to_mapping()):
                raise SpecError(
                    "",
                    "name",
                    f"'{made.name}' has begun with other keys ({made._directory})",
                    "Restore these lines, or write another name. To go on with more trials or"
                    " methods, use Study.from_spec({...}):",
                    differences=lines,
                )
        return made

    @classmethod
    def open(cls, study: str | Path, storage: str | Path | None = None) -> Study:
        """The study in a directory, of a spec that was run, or with that name under the storage.

        storage: default: $CALSTUDY_STORAGE, else ./studies. Raises SpecError if there is none.
        """
        found = store.open_study(str(study), text_or_none(storage))
        return cls(found.directory.absolute(), None)

    @classmethod
    def from_spec(
        cls, spec: str | Path | Mapping[str, Any], storage: str | Path | None = None
    ) -> Study:
        """The study of a file, or of its keys in a dict, run or not yet; data as in `create`.

        Run again with more trials or methods, it goes on. Raises SpecError if it is invalid.
        """
        from study.schema.reading import parse_spec

        if isinstance(spec, Mapping):
            parsed = parsed_keys(spec, text_or_none(storage))
        else:
            parsed = parse_spec(Path(spec))
        read, _ = store.begun(parsed, text_or_none(storage))
        root = store.storage_root(text_or_none(storage), read.storage)
        return cls(root / read.name, read, parsed.file_name)

    # ---- what it is ------------------------------------------------------------------------------

    @property
    def name(self) -> str:
        return self._directory.name

    @property
    def directory(self) -> Path:
        """Where it lies, or will."""
        return self._directory

    @property
    def spec(self) -> StudySpec:
        """The checked study."""
        return self._spec or self._now().spec

    def __repr__(self) -> str:
        from study.analysis.states import in_words, snapshot, summed

        states = "not run yet"
        if self._has_begun():
            states = in_words(summed(snapshot(self._now()).counts.values()))
        return f"Study({self.name!r}: {states}; {self.directory})"

    def __dir__(self) -> list[str]:
        return [name for name in super().__dir__() if not name.startswith("_")]

    # ---- its trials ------------------------------------------------------------------------------

    def trials(self) -> pandas.DataFrame:
        """One row per trial, in any state: trial, method, number, state, front; each searched value
        by its path; each metric of the result; epoch, samples, seconds, attempts, started, ended,
        device, training, reason. Of a confirmation also each metric on test, as `test_ece`.

        Trials not proposed yet have no row. Times are UTC. `seconds` and `samples` count training
        only. A value that a trial lacks is missing.
        """
        from study.analysis.frames import trials_frame

        return trials_frame(self._now())

    def epochs(self) -> pandas.DataFrame:
        """One row per epoch of each finished trial: trial, method, number, epoch, time (UTC),
        seconds, samples, train_loss (the mean over batches), and the validation metrics of each
        epoch.

        Raises FieldError if a history is missing or altered.
        """
        from study.analysis.frames import epochs_frame

        return epochs_frame(self._now())

    def front(self, objectives: str | Sequence[str] | None = None) -> pandas.DataFrame:
        """The rows of `trials` on the Pareto front, best by the first objective first. A notebook
        shows six of its columns, and the front's figure.

        objectives: other metrics on validation, given afterwards: "accuracy,nll", or a list; the
        frame's `attrs["afterwards"]` then says what the study searched for.
        """
        from study.notebook.front import Front

        return Front.of(self._seen(objectives, begun=False))

    def predictions(self, trial: str, split: str = "validation") -> Predictions:
        """Logits [N, K] and labels [N] of a complete trial: `focal/0007`.

        split: `test` reads what `confirm` wrote of a confirmation's trial when it opened the test
        split; it opens nothing itself. Raises FieldError if there is no such trial, if it was not
        measured on test, or if the file is missing or altered.
        """
        now = self._now()
        record = now.records().named(trial, "trial")
        if split not in SPLITS:
            raise FieldError("split", f"there is no split '{split}'", nearest(split, SPLITS))
        return (tested_predictions if split == "test" else stored_predictions)(now, record)

    # ---- its commands ----------------------------------------------------------------------------

    def plan(
        self,
        *,
        trials: int | None = None,
        probe: bool = False,
        explain: bool = False,
        address: str | None = None,
        wait: str | None = None,
        nodes: int | None = None,
        slots: int | None = None,
        cpus: int | None = None,
    ) -> Plan:
        """What `run` will do. probe: train a few epochs, and predict what the study costs. explain:
        every key with its default, every range with its source. wait, nodes, slots: as of `run`."""
        if probe or (address, wait, nodes, slots) != (None,) * 4:  # it trains, or joins a cluster
            options = option_words(
                trials=trials,
                probe=probe,
                explain=explain,
                address=address,
                wait=wait,
                nodes=nodes,
                slots=slots,
                cpus=cpus,
            )
            return Plan(self._of_spec("plan", options, echo=False))
        from study.commands.plan import plan_lines

        with self._written() as file:
            return Plan(plan_lines(file, trials, explain, cpus, str(self._directory.parent)))

    def run(
        self,
        address: str | None = None,
        *,
        trials: int | None = None,
        retry_failed: bool | Sequence[str] = False,
        wait: str | None = None,
        nodes: int | None = None,
        slots: int | None = None,
        cpus: int | None = None,
        tracking: str | None = None,
        trust: bool = False,
        moved: bool = False,
    ) -> Study:
        """Run the missing trials; returns the study as it then is.

        address: a Ray cluster; default: this machine, with the CPUs that are ours. wait: for nodes
        of the cluster, so long ("15m"); nodes, slots: until so many are there. trials: per
        method, to go on with more. retry_failed: retry all failed trials, or these ("focal/0007").
        trust: use the code and the servers that a folder of another user names, of a study that was
        opened. moved: go on in a copy, whose original is gone.
        """
        options = option_words(
            address=address,
            trials=trials,
            wait=wait,
            nodes=nodes,
            slots=slots,
            cpus=cpus,
            tracking=tracking,
            moved=moved,
        ) + retry_words(retry_failed)
        if self._spec is None:
            self._of_study("run", [*options, *option_words(trust=trust)])
        else:
            self._of_spec("run", options)
        return type(self).open(self._directory)

    def answer(
        self,
        *,
        temperature: bool | None = None,
        objectives: str | Sequence[str] | None = None,
        interval: float = 95,
    ) -> Answer:
        """Which model to take, how sure that is, and what to do next.

        temperature: as if the model were served with it, or as trained (False). objectives: others
        than the study searched, "accuracy,nll". interval: the level of intervals, in percent.
        """
        from study.answer.answer import answer as answer_of
        from study.answer.confirmation import results_of
        from study.schema.objective import RAW, TEMPERATURE
        from study.store.with_objectives import check_given_matters

        seen = self._seen(objectives)
        if temperature is not None:
            seen = seen.served_as(TEMPERATURE if temperature else RAW)
        check_given_matters(seen)
        results, level = results_of(seen), level_of(interval)
        with in_calls():
            found = answer_of(results, level)
        return Answer(**vars(found), afterwards=seen.afterwards, results=results, level=level)

    def confirm(
        self,
        *,
        top: int | None = None,
        pareto: bool = False,
        each: bool = False,
        trials: Sequence[str] = (),
        candidates: int | None = None,
        seeds: int | None = None,
        until: float | None = None,
        at_most: int | None = None,
        trainings: int | None = None,
        defaults: bool = False,
        calibrators: Sequence[str] = (),
        address: str | None = None,
        wait: str | None = None,
        nodes: int | None = None,
        slots: int | None = None,
        cpus: int | None = None,
        tracking: str | None = None,
    ) -> Study:
        """Retrain candidates with fresh seeds, then open the test split; returns the confirmation.

        A study without a search is its own: it is measured as it is, and returned.

        top: so many; pareto: the front; each: each method's best; trials: these; default: the front
        and `candidates` lowest sums. seeds: of each; default: a race, with until, at_most,
        trainings, defaults and calibrators as of `calstudy confirm`. wait, nodes, slots: `run`'s.
        """
        options = option_words(
            top=top,
            pareto=pareto,
            each=each,
            trial=trials,
            candidates=candidates,
            seeds=seeds,
            until=until,
            at_most=at_most,
            trainings=trainings,
            defaults=defaults,
            calibrators=",".join(calibrators) or None,
            address=address,
            wait=wait,
            nodes=nodes,
            slots=slots,
            cpus=cpus,
            tracking=tracking,
        )
        self._of_study("confirm", options)
        now = store.open_directory(self._directory, self._directory.name)
        if now.confirms_itself:
            return type(self).open(self._directory)
        return type(self).open(confirming_directory(self._directory))

    def report(
        self,
        output: str | Path | None = None,
        *,
        objectives: str | Sequence[str] | None = None,
        bootstrap: int = 1000,
        interval: float = 95,
    ) -> Path:
        """Write the page of all results; returns its file. Default: report.html in the study's
        directory.

        objectives: other metrics than the study searched; default then: report-accuracy-nll.html.
        """
        options = option_words(
            output=output,
            objectives=in_commas(objectives),
            bootstrap=bootstrap,
            interval=interval,
        )
        self._of_study("report", options)
        usual = self._directory / f"report{self._seen(objectives).suffix}.html"
        return Path(output or usual).absolute()

    def figures(
        self,
        output: str | Path | None = None,
        *,
        format: str = "png",
        only: str | None = None,
        trial: str | None = None,
        objectives: str | Sequence[str] | None = None,
        bootstrap: int = 1000,
        interval: float = 95,
    ) -> Figures:
        """Draw each figure that the study's files allow; returns their files, which a notebook
        shows. Default: figures in the study's directory.

        objectives: other metrics than the study searched; default then: figures-accuracy-nll.
        """
        from study.commands.figures import draw_figures
        from study.terminal.console import check_resamples

        level = level_of(interval)
        try:
            check_resamples(bootstrap, level)
        except UsageError as error:
            raise FieldError("bootstrap", error.message) from None
        folder = None if output is None else Path(output)
        seen = self._seen(objectives)
        say = Place().stays
        return Figures(draw_figures(seen, say, folder, format, only, trial, bootstrap, level))

    def export(
        self,
        name: str,
        *,
        alias: str | None = None,
        trial: str | None = None,
        pick: str | None = None,
        temperature: bool | None = None,
        calibrator: str | None = None,
        objectives: str | Sequence[str] | None = None,
        tracking: str | None = None,
    ) -> str:
        """Register one trial's model in MLflow; returns its URI, `models:/NAME/1`.

        Default: the model that `answer` names. objectives: what you selected the trial for, for its
        card.
        """
        options = option_words(name=name, alias=alias, trial=trial, pick=pick, tracking=tracking)
        options += option_words(calibrator=calibrator, objectives=in_commas(objectives))
        lines = self._of_study("export", [*options, *served_words(temperature)])
        found = re.search(rf"models:/{re.escape(name)}/\d+", "\n".join(lines))
        assert found is not None
        return found[0]

    # ---- how they run ----------------------------------------------------------------------------

    def _has_begun(self) -> bool:
        return (self._directory / "study.yaml").exists()

    def _now(self) -> store.StudyFolder:
        """The study as it is on disk; one that has not begun has no trials."""
        if self._spec is None or self._has_begun():
            self._stored = store.open_directory(self._directory, self.name, self._stored)
            return self._stored
        return store.StudyFolder.of(self._directory, self._spec, Recorded())

    def _seen(
        self, objectives: str | Sequence[str] | None, begun: bool = True
    ) -> store.StudyFolder:
        """The study by these objectives; by its own for None. begun: it must have."""
        from study.schema.objective import read_objectives
        from study.store.with_objectives import with_objectives

        if begun:
            self._check_begun()
        given = None if objectives is None else read_objectives(objectives, "objectives")
        return with_objectives(self._now(), given)

    def _check_begun(self) -> None:
        if not self._has_begun():
            raise UserError(f"{self.name} has not been run yet", "Run it: run()")

    def _of_study(self, command: str, options: Sequence[str], echo: bool = True) -> tuple[str, ...]:
        """The output of a command about a study that has begun."""
        self._check_begun()
        return self._output_of(command, self._directory, options, echo)

    def _of_spec(self, command: str, options: Sequence[str], echo: bool = True) -> tuple[str, ...]:
        """The output of a command about the spec."""
        with self._written() as file:
            return self._output_of(command, file, options, echo)

    def _output_of(
        self, command: str, about: Path, options: Sequence[str], echo: bool
    ) -> tuple[str, ...]:
        words = [command, str(about), "--storage", str(self._directory.parent), *options]
        return run_command(words, Place(), f"{command}()", echo)

    @contextmanager
    def _written(self) -> Iterator[Path]:
        """The spec as a file that its user never sees."""
        with tempfile.TemporaryDirectory(prefix="calstudy-") as folder:
            file = Path(folder) / self._file_name
            file.write_text(strict_yaml.dump(self.spec.to_mapping()), encoding="utf-8")
            yield file
