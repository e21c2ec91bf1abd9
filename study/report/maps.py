"""Four validation images of a study with masks, and what its model makes of each pixel."""

from __future__ import annotations

import base64
import colorsys
import io
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from numpy.typing import NDArray
from PIL import Image, ImageColor

from study.answer.choice import choose
from study.answer.confirmation import results_of, search_of
from study.report.style import COLOURS, SMALL, TEXT, new_figure, our_settings
from study.schema.objective import RAW
from study.store.files import stored_classifier, stored_predictions
from study.store.study import StudyFolder
from study.store.trials import TrialRecord
from trainables.problems import FieldError

if TYPE_CHECKING:
    from torch import Tensor

    from trainables.outputs.classifier import Classifier

Bytes = NDArray[np.uint8]
LARGEST = 60_000  # bytes of a PNG
# Until one fits: dots per inch, and colours.
DOTS = (130, 100, 80, 60, 45)
COUNTS = (256, 64)
VOID = (160, 160, 160)
RIGHT = (255, 255, 255)
WRONG = (0, 0, 0)
PANELS = ("image", "mask", "prediction", "confidence", "wrong pixels")
MOST_NAMED = 24  # classes in a legend
COLUMNS = 8  # of the legend


@dataclass(frozen=True)
class Map:
    """A validation image beside its mask, prediction, confidence and wrong pixels.

    number: in the validation split, from 0. error: the share of its labelled pixels that is wrong.
    """

    number: int
    why: str
    error: float
    labelled: int
    classes: tuple[str, ...]
    png: bytes = b""

    @property
    def caption(self) -> str:
        """`Validation image 17, largest error: 41.2% of its 9,600 labelled pixels are wrong.`"""
        wrong = f"{self.error:.1%} of its {self.labelled:,} labelled pixels are wrong"
        return f"Validation image {self.number}, {self.why}: {wrong}."

    @property
    def alt(self) -> str:
        """What is drawn, for those who do not see it."""
        panels = f"{', '.join(PANELS[:-1])} and {PANELS[-1]}"
        return f"{self.caption} From left: {panels}. Classes: {', '.join(self.classes)}."


def plain_of(found: Map, record: TrialRecord) -> dict[str, str]:
    """A map as the page has it."""
    drawn = base64.b64encode(found.png).decode()
    return {
        "trial": record.name,
        "caption": found.caption,
        "alt": found.alt,
        "source": f"data:image/png;base64,{drawn}",
    }


def answered(study: StudyFolder, front: Sequence[TrialRecord]) -> tuple[StudyFolder, TrialRecord]:
    """The trial that the answer names, with its study: the search or its confirmation; else the
    first of the front. Raises FieldError if there is none."""
    try:
        choice = choose(results_of(study))
    except FieldError:
        if not front:
            raise
        return study, front[0]
    return choice.study, choice.record


def maps_of(study: StudyFolder, record: TrialRecord) -> list[Map]:
    """The maps of a complete trial, as deployed: two of the largest errors, and two drawn by seed.

    Raises FieldError if its model, its predictions or the data cannot be had.
    """
    from trainables.loading.cache import load_split, prepare

    config = study.config_of(record)
    try:
        prepared = prepare(config.data, config.seed, digest=study.recorded.data_digest)
    except OSError as error:
        raise FieldError("data", f"cannot be read ({error.strerror or error})") from None
    classifier, _ = stored_classifier(study, record, prepared)
    if search_of(study).serves == RAW:
        classifier.temperature.fill_(1.0)
    split = load_split(prepared, "validation")
    assert split.marked is not None and split.positions is not None
    stored = stored_predictions(study, record)
    wrong = (stored.logits.argmax(dim=1) != stored.labels).numpy()
    errors = errors_of(wrong, split.positions.images.numpy(), len(split.images))
    colours = class_colours(prepared.num_classes)
    found = []
    for number, why in chosen(errors, config.seed):
        sample = split.marked[number].numpy()
        probs = _probabilities(classifier, split.images[number : number + 1])
        found.append(_map(number, why, sample, probs, prepared.classes, colours))
    return found


def _probabilities(classifier: Classifier, image: Tensor) -> NDArray[np.float32]:
    """[K, H, W] of an image [1, C, H, W]."""
    import torch

    with torch.inference_mode():
        found: NDArray[np.float32] = classifier(image)[0].numpy()
    return found


def errors_of(
    wrong: NDArray[np.bool_], images: NDArray[np.int64], total: int
) -> NDArray[np.float64]:
    """The share of wrong rows of each image, [N]; NaN of one without rows. wrong, images: [R]."""
    rows = np.bincount(images, minlength=total)
    with np.errstate(invalid="ignore"):
        return np.bincount(images, wrong, total) / rows


def chosen(errors: NDArray[np.float64], seed: int) -> list[tuple[int, str]]:
    """The images to show, and why: the two of the largest errors (of equal ones, the first), and
    two of the others, drawn by the seed. Those without labelled pixels (NaN) are left out."""
    from trainables.seeding import seed_of

    known = np.flatnonzero(~np.isnan(errors))
    by_error = known[np.argsort(-errors[known], kind="stable")]
    rest = np.sort(by_error[2:])
    source = np.random.default_rng(seed_of(seed, "maps"))
    drawn = source.choice(rest, min(2, len(rest)), replace=False)
    why = ("largest error", "second largest error")
    return [
        *((int(number), text) for number, text in zip(by_error, why, strict=False)),
        *((int(number), "drawn at random") for number in drawn),
    ]


def class_colours(classes: int) -> Bytes:
    """A colour for each class, [K, 3]: those of figures first, then hues apart; none is grey."""
    found = [ImageColor.getrgb(colour) for colour in COLOURS]
    for k in range(classes - len(found)):
        # Steps of the golden ratio never come close to an earlier hue.
        hue = (0.05 + 0.618034 * k) % 1
        bright = (0.6, 0.95, 0.4)[k // 3 % 3] - 0.005 * (k // 9)
        red, green, blue = colorsys.hsv_to_rgb(hue, (1, 0.6, 0.8)[k % 3], bright)
        found.append((round(255 * red), round(255 * green), round(255 * blue)))
    return np.array(found[:classes], dtype=np.uint8)


# ---- drawing -------------------------------------------------------------------------------------


def _map(
    number: int,
    why: str,
    sample: Bytes,
    probs: NDArray[np.float32],
    classes: Sequence[str],
    colours: Bytes,
) -> Map:
    """sample: [C + 1, H, W], as in the cache. probs: [K, H, W]."""
    mask = sample[-1].astype(int) - 1
    predicted = probs.argmax(axis=0)
    labelled = int((mask >= 0).sum())
    wrong = int(((mask >= 0) & (mask != predicted)).sum())
    there = [int(k) for k in np.unique([mask, predicted]) if k >= 0]
    named = [(textwrap.shorten(classes[k], 24), colours[k] / 255) for k in there[:MOST_NAMED]]
    if len(there) > MOST_NAMED:
        named.append((f"and {len(there) - MOST_NAMED} more", np.ones(3)))
    found = Map(number, why, wrong / labelled, labelled, tuple(classes[k] for k in there))
    return replace(found, png=_drawn(found.caption, panels_of(sample, probs, colours), named))


def panels_of(sample: Bytes, probs: NDArray[np.float32], colours: Bytes) -> list[NDArray[Any]]:
    """What is drawn, in the order of PANELS: [H, W, 3] uint8, and the confidences, [H, W].

    sample: [C + 1, H, W]; of other than three channels the first is shown, as grey.
    """
    image = sample[:-1] if len(sample) == 4 else sample[[0, 0, 0]]
    mask = sample[-1].astype(int) - 1
    predicted = probs.argmax(axis=0)
    shades = np.vstack([colours, np.array([VOID], dtype=np.uint8)])  # -1 is the last
    wrong = np.where((mask != predicted)[..., None], WRONG, RIGHT)
    wrong = np.where((mask < 0)[..., None], VOID, wrong).astype(np.uint8)
    return [image.transpose(1, 2, 0), shades[mask], shades[predicted], probs.max(axis=0), wrong]


def _drawn(
    title: str, panels: Sequence[NDArray[Any]], named: Sequence[tuple[str, NDArray[Any]]]
) -> bytes:
    """A PNG of at most LARGEST bytes: of fewer dots and colours until it is."""
    drawn = io.BytesIO()
    with our_settings():
        figure = _figure(title, panels, named)
        for dots, count in product(DOTS, COUNTS):
            drawn, whole = io.BytesIO(), io.BytesIO()
            figure.savefig(whole, dpi=dots)
            image = Image.open(whole).convert("RGB").quantize(count, dither=Image.Dither.NONE)
            image.save(drawn, "PNG", optimize=True)
            if drawn.tell() <= LARGEST:
                break
    return drawn.getvalue()


def _figure(
    title: str, panels: Sequence[NDArray[Any]], named: Sequence[tuple[str, NDArray[Any]]]
) -> Figure:
    figure = new_figure()
    height, width = panels[0].shape[:2]
    tall = min(3.0, max(0.3, 1.9 * height / width))  # inches
    known = [Patch(facecolor=tuple(colour), edgecolor="0.4", label=name) for name, colour in named]
    others = (("no label", VOID), ("wrong", WRONG))
    known += [Patch(color=tuple(np.array(shade) / 255), label=name) for name, shade in others]
    figure.set_size_inches(10, tall + 0.8 + 0.16 * -(-len(known) // COLUMNS))
    for axes, name, panel in zip(figure.subplots(1, len(PANELS)), PANELS, panels, strict=True):
        shown = axes.imshow(panel, cmap="viridis", vmin=0, vmax=1, interpolation="none")
        axes.set_title(name, fontsize=TEXT)
        axes.set_axis_off()
        if panel.ndim == 2:
            figure.colorbar(shown, ax=axes, fraction=0.04).ax.tick_params(labelsize=SMALL)
    figure.suptitle(title, fontsize=TEXT + 1)
    figure.legend(
        handles=known, fontsize=SMALL, loc="outside lower center", ncols=COLUMNS, frameon=False
    )
    return figure
