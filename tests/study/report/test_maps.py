"""Maps of images with masks: which are shown, and that each pixel has the colour of its class."""

import io

import numpy as np
import pytest
from PIL import Image

from study.report.figure_set import FIGURES, Gallery, draw
from study.report.html import render
from study.report.maps import (
    VOID,
    _map,
    chosen,
    class_colours,
    errors_of,
    panels_of,
)
from study.store.trials import Trials
from tests.study.made import unwritten_study
from trainables.problems import FieldError

WHITE, BLACK = (255, 255, 255), (0, 0, 0)


def image_of(png: bytes) -> np.ndarray:
    return np.asarray(Image.open(io.BytesIO(png)).convert("RGB"))


def test_the_error_of_an_image_is_of_its_own_rows() -> None:
    wrong = np.array([True, False, True, True, False, False, False])
    images = np.array([0, 0, 2, 2, 2, 4, 4])
    np.testing.assert_allclose(
        errors_of(wrong, images, 6), [1 / 2, np.nan, 2 / 3, np.nan, 0, np.nan]
    )


def test_the_two_worst_and_two_others_are_shown() -> None:
    errors = np.array([0.1, np.nan, 0.6, 0.2, 0.9, np.nan, 0.6, 0.3, 0.0])
    shown = chosen(errors, 3)
    assert shown[:2] == [(4, "largest error"), (2, "second largest error")]
    drawn = [number for number, why in shown[2:]]
    assert {why for _, why in shown[2:]} == {"drawn at random"}
    assert len(set(drawn)) == 2 and set(drawn) <= {0, 3, 6, 7, 8}
    assert chosen(errors, 3) == shown
    seen = {number for seed in range(60) for number, _ in chosen(errors, seed)[2:]}
    assert seen == {0, 3, 6, 7, 8}  # any of the others, by the seed
    assert [number for number, _ in chosen(np.array([np.nan, 0.5, 0.7]), 0)] == [2, 1]
    assert chosen(np.array([np.nan]), 0) == []


def test_every_class_has_a_colour_of_its_own_and_none_is_grey() -> None:
    colours = class_colours(254)
    assert len(np.unique(colours, axis=0)) == 254
    assert (np.ptp(colours.astype(int), axis=1) > 40).all()
    np.testing.assert_array_equal(class_colours(3), colours[:3])


def test_each_panel_has_what_it_is_called() -> None:
    random = np.random.default_rng(0)
    mask = random.integers(-1, 3, (40, 60))
    probs = random.dirichlet(np.ones(3), (40, 60)).transpose(2, 0, 1).astype(np.float32)
    sample = np.concatenate([np.full((1, 40, 60), 200), mask[None] + 1]).astype(np.uint8)
    colours = np.array([[10, 20, 230], [220, 30, 40], [0, 140, 20]], dtype=np.uint8)
    photo, masks, predictions, confidence, wrong = panels_of(sample, probs, colours)
    assert photo.shape == (40, 60, 3) and (photo == 200).all()
    errors = 0
    for row in range(40):
        for column in range(60):
            true = mask[row, column]
            guess = int(probs[:, row, column].argmax())
            assert tuple(masks[row, column]) == (VOID if true < 0 else tuple(colours[true]))
            assert tuple(predictions[row, column]) == tuple(colours[guess])
            is_wrong = true >= 0 and guess != true
            expected = BLACK if is_wrong else VOID if true < 0 else WHITE
            assert tuple(wrong[row, column]) == expected
            assert confidence[row, column] == probs[guess, row, column]
            errors += is_wrong
    labelled = int((mask >= 0).sum())
    found = _map(17, "largest error", sample, probs, ("sky", "road", "tree"), colours)
    assert (found.error, found.labelled) == (errors / labelled, labelled)
    assert found.caption == (
        f"Validation image 17, largest error: {errors / labelled:.1%} of its {labelled:,} labelled"
        " pixels are wrong."
    )
    assert found.alt.endswith(
        "From left: image, mask, prediction, confidence and wrong pixels. Classes: sky, road, tree."
    )


@pytest.mark.parametrize(("size", "classes"), [((120, 90), 30), ((30, 600), 2), ((1, 1), 2)])
def test_whatever_is_drawn_fits_into_sixty_kilobytes(size: tuple[int, int], classes: int) -> None:
    """Noise cannot be compressed: it is drawn smaller."""
    random = np.random.default_rng(0)
    sample = random.integers(1, 256, (4, *size), dtype=np.uint8)
    sample[-1] = random.integers(1, classes + 1, size)
    probs = random.random((classes, *size), dtype=np.float32)
    colours = class_colours(classes)
    names = [f"class number {k}" for k in range(classes)]
    found = _map(0, "drawn at random", sample, probs, names, colours)
    assert 0 < len(found.png) <= 60_000
    height, width, _ = image_of(found.png).shape
    assert width > 400 and height > 40


def test_a_page_may_show_images_that_are_its_own_alone() -> None:
    page = {"studies": [{"name": "small", "maps": [{"source": "data:image/png;base64,AAAA"}]}]}
    assert "; img-src data:; base-uri 'none'" in render(page)
    assert "img-src" not in render({"studies": [{"name": "small"}]})


def test_a_study_without_masks_has_no_maps(tmp_path) -> None:
    gallery = Gallery(unwritten_study(["focal"]), Trials({"focal": []}))
    _, reasons = draw(gallery, tmp_path / "figures", "png")
    assert reasons and not [reason for reason in reasons if "maps" in reason]
    assert "maps" in FIGURES
    (reason,) = draw(gallery, tmp_path / "figures", "png", "maps")[1]
    assert reason == "maps: small: its images have no masks."
    with pytest.raises(FieldError, match="there is no figure 'map'"):
        draw(gallery, tmp_path / "figures", "png", "map")
