"""Four validation images of a study with masks, and what its model makes of each pixel."""

from __future__ import annotations

import base64
import colorsys
import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import matplotlib
import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageColor, ImageDraw, ImageFont

from study.answer.choice import choose
from study.answer.confirmation import results_of, search_of
from study.report.style import COLOURS
from study.schema.objective import RAW
from study.store.files import stored_classifier, stored_predictions
from study.store.study import Study
from study.store.trials import TrialRecord
from trainables.problems import FieldError

if TYPE_CHECKING:
    from torch import Tensor

    from trainables.outputs.classifier import Classifier

Bytes = NDArray[np.uint8]
LARGEST = 60_000  # bytes of a PNG
# Until one fits: the longer side of a panel in pixels, and the colours of the image in it.
SIDES = (240, 180, 135, 100, 75, 50)
PHOTO_COLOURS = (128, 48, 24)
VOID = (160, 160, 160)
RIGHT = (255, 255, 255)
WRONG = (0, 0, 0)
PANELS = ("image", "mask", "prediction", "confidence", "wrong pixels")
LEVELS = 16  # of confidence
GREYS = 8  # of letters
TEXT = 11  # pixels
GAP = 6
LINE = TEXT + 6
MOST_NAMED = 24  # classes in a legend
LONGEST_NAME = 24


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


def answered(study: Study, front: Sequence[TrialRecord]) -> tuple[Study, TrialRecord]:
    """The trial that the answer names, with its study: the search or its confirmation; else the
    first of the front. Raises FieldError if there is none."""
    try:
        choice = choose(results_of(study))
    except FieldError:
        if not front:
            raise
        return study, front[0]
    return choice.study, choice.record


def maps_of(study: Study, record: TrialRecord) -> list[Map]:
    """The maps of a complete trial, as served: two of the largest errors, and two drawn by seed.

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
    is_wrong = (mask >= 0) & (mask != predicted)
    labelled = int((mask >= 0).sum())
    panels = [
        _photo(sample[:-1]),
        _coloured(mask, colours),
        _coloured(predicted, colours),
        _confidence(probs.max(axis=0)),
        _coloured(is_wrong - (mask < 0).astype(int), np.array([RIGHT, WRONG], dtype=np.uint8)),
    ]
    there = [int(k) for k in np.unique([mask, predicted]) if k >= 0]
    names = tuple(classes[k] for k in there)
    entries = [
        (_short(classes[k]), (int(colours[k, 0]), int(colours[k, 1]), int(colours[k, 2])))
        for k in there[:MOST_NAMED]
    ]
    if len(there) > MOST_NAMED:
        entries.append((f"and {len(there) - MOST_NAMED} more", RIGHT))
    entries += [("no label", VOID), ("wrong", WRONG)]
    error = float(is_wrong.sum() / labelled)
    found = Map(number, why, error, labelled, names)
    return replace(found, png=fitting(found.caption, panels, entries))


def _short(name: str) -> str:
    return name if len(name) <= LONGEST_NAME else f"{name[: LONGEST_NAME - 3]}..."


def _photo(image: Bytes) -> Bytes:
    """[H, W, 3] of [C, H, W]: three channels as colours, of any other number the first as grey."""
    shown = image if len(image) == 3 else image[[0, 0, 0]]
    return np.ascontiguousarray(shown.transpose(1, 2, 0))


def _coloured(numbers: NDArray[np.int64], colours: Bytes) -> Bytes:
    """[H, W, 3] of numbers [H, W]; -1 is grey."""
    return np.concatenate([colours, np.array([VOID], dtype=np.uint8)])[numbers]


def _confidence(values: NDArray[np.float32]) -> Bytes:
    """[H, W, 3] of confidences [H, W], from 0 (dark) to 1 (bright)."""
    step = np.minimum((values * LEVELS).astype(int), LEVELS - 1)
    return _levels()[step]


@cache
def _levels() -> Bytes:
    shades = matplotlib.colormaps["viridis"](np.linspace(0, 1, LEVELS))[:, :3]
    return (255 * shades).round().astype(np.uint8)


Colour = tuple[int, int, int]


def fitting(title: str, panels: Sequence[Bytes], entries: Sequence[tuple[str, Colour]]) -> bytes:
    """A PNG of the panels [H, W, 3] side by side and a legend, of at most LARGEST bytes: smaller,
    and of fewer colours, until it is. The first panel is a photo, and loses colours alone."""
    drawn = b""
    for side, count in _sizes():
        resized = [_resized(panel, side, k == 0) for k, panel in enumerate(panels)]
        photo = Image.fromarray(resized[0]).quantize(count, dither=Image.Dither.NONE)
        resized[0] = np.asarray(photo.convert("RGB"))
        drawn = _png(_composed(title, resized, entries))
        if len(drawn) <= LARGEST:
            break
    return drawn


def _sizes() -> Iterator[tuple[int, int]]:
    for side in SIDES:
        for count in PHOTO_COLOURS:
            yield side, count


def _resized(panel: Bytes, side: int, is_photo: bool) -> Bytes:
    """The panel with its longer side of `side` pixels, or the multiple below. Classes stay what
    they are: the nearest pixel's."""
    height, width = panel.shape[:2]
    longer = max(height, width)
    if longer <= side:
        times = side // longer
        return panel.repeat(times, axis=0).repeat(times, axis=1)
    size = (max(1, round(width * side / longer)), max(1, round(height * side / longer)))
    how = Image.Resampling.BOX if is_photo else Image.Resampling.NEAREST
    return np.asarray(Image.fromarray(panel).resize(size, how))


def _composed(title: str, panels: Sequence[Bytes], entries: Sequence[tuple[str, Colour]]) -> Bytes:
    """The title, the panels below their names, and the legend in lines below them."""
    height, width = panels[0].shape[:2]
    widest = max(width, *(_wide(name) for name in PANELS))
    total = GAP + len(panels) * (widest + GAP)
    lines = _lines(entries, total)
    top = 2 * LINE + GAP
    canvas = np.full((top + height + GAP + LINE * (len(lines) + 1) + GAP, total, 3), 255, np.uint8)
    _write(canvas, title, GAP, GAP // 2)
    for place, (name, panel) in enumerate(zip(PANELS, panels, strict=True)):
        left = GAP + place * (widest + GAP)
        _write(canvas, name, left, GAP // 2 + LINE)
        canvas[top : top + height, left : left + width] = panel
    y = top + height + GAP
    for line in lines:
        x = GAP
        for name, colour in line:
            _square(canvas, colour, x, y)
            _write(canvas, name, x + LINE, y)
            x += _space(name)
        y += LINE
    _write(canvas, "confidence 0", GAP, y)
    x = GAP + _wide("confidence 0") + GAP
    for shade in _levels():
        canvas[y + 2 : y + 2 + TEXT, x : x + TEXT] = shade
        x += TEXT
    _write(canvas, "1", x + GAP, y)
    return canvas


def _lines(entries: Sequence[tuple[str, Colour]], total: int) -> list[list[tuple[str, Colour]]]:
    """The legend's entries, in lines that fit the width."""
    lines: list[list[tuple[str, Colour]]] = [[]]
    x = GAP
    for entry in entries:
        if lines[-1] and x + _space(entry[0]) > total:
            lines.append([])
            x = GAP
        lines[-1].append(entry)
        x += _space(entry[0])
    return lines


def _space(name: str) -> int:
    """The width of a legend's entry: a square, its name and a gap."""
    return LINE + _wide(name) + 2 * GAP


@cache
def _font() -> ImageFont.FreeTypeFont:
    """matplotlib's own, as in the other figures."""
    return ImageFont.truetype(Path(matplotlib.get_data_path()) / "fonts/ttf/DejaVuSans.ttf", TEXT)


def _wide(text: str) -> int:
    return round(_font().getlength(text)) + 1


def _square(canvas: Bytes, colour: Colour, x: int, y: int) -> None:
    """A class's square, framed: some colours are white."""
    canvas[y + 1 : y + 3 + TEXT, x : x + TEXT + 2] = 90
    canvas[y + 2 : y + 2 + TEXT, x + 1 : x + TEXT + 1] = colour


def _write(canvas: Bytes, text: str, x: int, y: int) -> None:
    """Write black text, in few greys: a palette holds all colours."""
    area = canvas[y : y + LINE, x : x + _wide(text)]
    drawn = Image.new("L", (area.shape[1], area.shape[0]), 255)
    ImageDraw.Draw(drawn).text((0, 0), text, fill=0, font=_font())
    step = 255 // (GREYS - 1)
    area[:] = ((np.asarray(drawn).astype(int) + step // 2) // step * step).clip(0, 255)[..., None]


def _png(canvas: Bytes) -> bytes:
    """The file; with a palette where the colours fit into one, so that each is exact."""
    height, width, _ = canvas.shape
    red, green, blue = canvas.reshape(-1, 3).T.astype(int)
    colours, numbers = np.unique(red << 16 | green << 8 | blue, return_inverse=True)
    image = Image.fromarray(canvas)
    if len(colours) <= 256:
        image = Image.fromarray(numbers.reshape(height, width).astype(np.uint8), "P")
        parts = np.column_stack([colours >> 16, colours >> 8 & 255, colours & 255])
        image.putpalette(parts.astype(np.uint8).tobytes())
    file = io.BytesIO()
    image.save(file, "PNG", optimize=True)
    return file.getvalue()
