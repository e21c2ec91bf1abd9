"""The page of a report in a real browser: pointed at, clicked, by keyboard, narrow, dark,
on paper, all offline."""

import base64
import json
import os
import re
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from optuna.distributions import BaseDistribution, FloatDistribution
from selenium import webdriver
from selenium.common.exceptions import StaleElementReferenceException as Stale
from selenium.webdriver import ActionChains, Keys
from selenium.webdriver.common.actions.action_builder import ActionBuilder
from selenium.webdriver.support.wait import WebDriverWait

from study.analysis import pareto
from study.analysis.ranking import Ranking
from study.report.first_screen import first_screen
from study.report.html import write_page
from study.report.page_data import gather, gather_page
from study.schema.objective import Objective
from study.store.study import StudyFolder
from study.store.trials import TrialRecord, Trials
from study.uncertainty.reliability import diagram, statement
from tests.study.made import Trial, made_study
from tests.study.report.test_first_screen import SAID
from tests.study.report_studies import (
    HOSTILE,
    analysis_of,
    confirmation_of,
    make_study,
    predictions,
    sizes_of,
    small,
    trials,
)

CHROMIUM = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)
CHROMEDRIVER = shutil.which("chromedriver")
Driver = Any
Approved = Callable[..., None]

pytestmark = [pytest.mark.slow, pytest.mark.platform]

# cross_entropy/0001 lies far from the rest; cross_entropy/0000 is beaten.
VALUES = {
    "cross_entropy/0000": {"accuracy": 0.90, "ece": 0.035, "nll": 0.5},
    "cross_entropy/0001": {"accuracy": 0.70, "ece": 0.040, "nll": 0.6},
    "cross_entropy/0002": {"accuracy": 0.89, "ece": 0.015, "nll": 0.7},
    "focal/0000": {"accuracy": 0.93, "ece": 0.030, "nll": 0.8},
    "focal/0001": {"accuracy": 0.92, "ece": 0.020, "nll": 0.4},
}
NEAR = [name for name in VALUES if name != "cross_entropy/0001"]
ANSWER = {
    "sentences": [
        "Take focal/0001.",
        "Accuracy 0.900 [0.880, 0.920] on 359 sealed test images, 3 seeds.",
    ],
    "why": [{"heading": "How sure", "text": "Values are means over `seeds`."}],
    "next": [["calstudy export small --trial focal/0001 --name small", "registers the model"]],
}
CSS = "css selector"
FOCAL_1 = predictions(101, 1.5)
ECE_OF_FOCAL_1 = FOCAL_1.evaluate()  # what its bins must give


class Page:
    """What a person does to the page, and sees."""

    def __init__(self, driver: Driver, records: list[TrialRecord]) -> None:
        self.driver, self.records = driver, records

    def open(self, file: Path, folded: bool = False) -> None:
        self.driver.get("about:blank")
        self.driver.get(file.as_uri())
        if not folded:
            self.driver.execute_script(
                "for (const each of document.querySelectorAll('.fold')) each.open = true"
            )

    def all(self, selector: str) -> list[Any]:
        return self.driver.find_elements(CSS, selector)

    def one(self, selector: str) -> Any:
        return self.driver.find_element(CSS, selector)

    def sentence(self, selector: str, words: str) -> str:
        """The one of an element's text that has these words."""
        found = re.split(r"(?<=\.)\s+|\n", self.one(selector).text)
        (sentence,) = {each for each in found if words in each}
        return sentence

    def point(self, trial: str) -> Any:
        return self.one(f'.point[data-trial="{trial}"]')

    def wait(self, true: Callable[[], bool]) -> None:
        """Until it is true: a busy machine draws late, and a page may reload between its
        element and its text."""
        WebDriverWait(self.driver, 60, ignored_exceptions=[Stale]).until(lambda _: true())

    def names(self, selector: str) -> list[str]:
        return [str(node.get_attribute("data-trial")) for node in self.all(selector)]

    def press(self, *keys: str) -> None:
        ActionChains(self.driver).send_keys(*keys).perform()

    def focused(self) -> Any:
        return self.driver.switch_to.active_element

    def choose(self, side: str, metric: str) -> None:
        self.one(f"select[name={side}] option[value={metric}]").click()

    def media(self, kind: str = "", scheme: str = "light") -> None:
        features = [
            {"name": "prefers-color-scheme", "value": scheme},
            # A click must not chase what still scrolls.
            {"name": "prefers-reduced-motion", "value": "reduce"},
        ]
        self.driver.execute_cdp_cmd(
            "Emulation.setEmulatedMedia", {"media": kind, "features": features}
        )

    def width(self, pixels: int) -> None:
        size = {"width": pixels, "height": 900, "deviceScaleFactor": 1, "mobile": False}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)

    def style(self, selector: str, name: str) -> str:
        return str(
            self.driver.execute_script(
                "return getComputedStyle(arguments[0])[arguments[1]]", self.one(selector), name
            )
        )

    def rows(self) -> list[str]:
        return [row.get_attribute("data-row") for row in self.all(".trials tbody tr")]


@pytest.fixture(scope="module")
def browser() -> Iterator[Driver]:
    if CHROMIUM is None or CHROMEDRIVER is None:
        pytest.skip("no tests in a browser: chromium and chromedriver are not installed")
    options = webdriver.ChromeOptions()
    options.binary_location = str(CHROMIUM)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    quiet = [
        "--headless=new",
        "--disable-gpu",
        "--disable-dev-shm-usage",
        "--no-first-run",
        "--hide-scrollbars",
    ]
    quiet += ["--disable-background-networking", "--disable-component-update"]
    for argument in quiet + ["--no-sandbox"] * (os.geteuid() == 0):  # root has no other way
        options.add_argument(argument)
    driver = webdriver.Chrome(options, webdriver.ChromeService(str(CHROMEDRIVER)))
    try:
        yield driver
    finally:
        driver.quit()


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("page") / "report.html"


@pytest.fixture(scope="module")
def records(file: Path) -> list[TrialRecord]:
    """Writes the page of a study with all there may be, and one of two studies beside it."""
    study, found = small(file.parent)
    found = Trials(
        {
            label: [
                replace(each, metrics={**each.metrics, **VALUES.get(each.name, {})})
                for each in of_label
            ]
            for label, of_label in found.by_label.items()
        }
    )
    confirmation = confirmation_of(study, found)
    whole = gather(study, found, analysis_of(found), confirmation, sizes=sizes_of(confirmation))
    write_page(file, gather_page([whole], "today"))
    bare, nothing = gather(study, found), gather(make_study(file.parent, "nothing"), trials())
    write_page(file.with_name("two.html"), gather_page([bare, nothing], "today"))
    write_page(file.with_name("answer.html"), gather_page([{**whole, "answer": ANSWER}], "today"))
    first = first_screen(SAID, Ranking(study, found), analysis_of(found), 0.95)
    named = {**whole, "answer": SAID.to_plain(), "first": first}
    write_page(file.with_name("first.html"), gather_page([named], "today"))
    drawn = searched_study(file.parent)
    write_page(file.with_name("drawn.html"), gather_page([gather(drawn, drawn.records())], "today"))
    return list(found.complete)


def searched_study(root: Path) -> StudyFolder:
    """On disk: focal with 16 trials of two searched values, mbls with two. Their
    accuracy follows gamma alone."""
    space: dict[str, BaseDistribution] = {
        "method.gamma": FloatDistribution(0.1, 5.0, log=True),
        "x": FloatDistribution(0, 1),
    }
    draw = np.random.default_rng(0).random

    def trials(count: int) -> list[Trial]:
        rows = [{"accuracy": 0.9 + 0.1 * draw(), "ece": 0.1 * draw()} for _ in range(count)]
        return [
            (row, [{"epoch": 1 + k, "nll": 1 / (1 + k), **row} for k in range(200)]) for row in rows
        ]

    return made_study(root, "drawn", {"focal": trials(16), "mbls": trials(2)}, space)


@pytest.fixture
def page(browser: Driver, file: Path, records: list[TrialRecord]) -> Page:
    """The page, freshly opened on a wide screen in light."""
    page = Page(browser, records)
    page.media()
    page.width(1280)
    page.open(file)
    return page


def test_pointing_at_a_trial_shows_its_values_and_settings(page: Page, approved: Approved) -> None:
    assert not page.one(".tip").is_displayed()
    ActionChains(page.driver).move_to_element(page.point("focal/0000")).perform()
    tip = page.one(".tip").text
    assert tip.startswith("focal/0000")
    assert (
        "0.930 [0.920, 0.940]" in tip
        and "0.030 [0.020, 0.040]" in tip
        and "75% of resamples" in tip
    )
    whiskers = page.sentence(".front figcaption", "90% intervals")
    assert whiskers.startswith("Whiskers: ")
    approved(whiskers)
    assert re.search(r"method\.gamma\s0\.25", tip)
    ActionChains(page.driver).move_to_element(page.one("h3")).perform()
    assert not page.one(".tip").is_displayed()


def test_the_line_joins_the_front_and_one_of_it_is_shown_first(page: Page) -> None:
    objectives = (Objective("accuracy", "maximize"), Objective("ece", "minimize"))
    front = pareto.front(page.records, objectives)
    assert page.names(".point.best") and set(page.names(".point.best")) == {
        record.name for record in front
    }
    assert page.one(".panel .trial").text in {record.name for record in front}
    assert not page.all(".take")  # no answer was given to this page


def test_what_lies_far_off_is_said_and_can_be_had(page: Page, approved: Approved) -> None:
    assert sorted(page.names(".point")) == sorted(NEAR)
    said = page.sentence(".front figcaption", "outside")
    assert said.startswith("1 trial ")
    approved(said)
    (far,) = set(VALUES) - set(NEAR)
    assert page.names(".beyond") == [far]
    ActionChains(page.driver).move_to_element(page.one(".beyond")).perform()
    assert far in page.one(".tip").text
    page.one("input[name=all]").click()
    assert sorted(page.names(".point")) == sorted(VALUES)
    assert "outside" not in page.one(".front figcaption").text and not page.names(".beyond")


def test_a_click_shows_the_reliability_diagram(page: Page) -> None:
    ActionChains(page.driver).move_to_element(page.point("focal/0001")).click().perform()
    assert page.one(".panel h4").text == "Reliability of focal/0001"
    before, after = (each.get_attribute("aria-label") for each in page.all("svg.reliability"))
    assert f"as trained: ECE {ECE_OF_FOCAL_1['ece']:.4f}" in before
    assert f"ECE {ECE_OF_FOCAL_1['ts_ece']:.4f}" in after
    assert statement() in page.one(".panel").text
    found = diagram(FOCAL_1)
    for svg, expected in zip(page.all("svg.reliability"), (found.raw, found.scaled), strict=True):
        frame, *bands = (
            [float(each.get_attribute(side)) for side in ("y", "height")]
            for each in svg.find_elements(CSS, ".frame, .band")
        )
        drawn = [
            [(frame[0] + frame[1] - at) / frame[1] for at in (y + high, y)] for y, high in bands
        ]
        assert np.array(drawn) == pytest.approx(np.stack([expected.low, expected.high], axis=1))
        assert len(svg.find_elements(CSS, ".outside")) == expected.outside.sum()
        assert len(svg.find_elements(CSS, ".inside")) == (~expected.outside).sum()
    assert page.point("focal/0001").get_attribute("aria-selected") == "true"
    assert [row.get_attribute("data-row") for row in page.all(".trials tr.selected")] == [
        "focal/0001"
    ]


def test_the_axes_can_be_chosen(page: Page) -> None:
    page.choose("x", "nll")
    assert [each.text for each in page.all(".plot text.axis")] == [
        "ECE, validation (lower is better)",
        "NLL in nats, validation (lower is better)",
    ]
    objectives = (Objective("nll", "minimize"), Objective("ece", "minimize"))
    assert set(page.names(".point.best")) == {
        record.name for record in pareto.front(page.records, objectives)
    }
    page.choose("y", "seconds")
    assert "training seconds (lower is better)" in page.one(".plot").text


def test_methods_can_be_left_out(page: Page, approved: Approved) -> None:
    page.one("input[name=focal]").click()
    assert {name.partition("/")[0] for name in page.names(".point") + page.rows()} == {
        "cross_entropy"
    }
    # Now cross_entropy/0000 has the best accuracy and is beaten no more.
    assert set(page.names(".point.best")) == {"cross_entropy/0000", "cross_entropy/0002"}
    page.one(".choose button:last-child").click()
    assert page.names(".point") == []
    approved(page.one(".plot").text)
    page.one(".choose button:first-child").click()
    assert sorted(page.names(".point")) == sorted(NEAR) and len(page.rows()) == 5


def test_everything_goes_by_keyboard(page: Page) -> None:
    page.driver.execute_script("document.querySelector('input[name=all]').focus()")
    page.press(Keys.TAB)
    # The selected one, and the only stop of the plot.
    assert page.focused().get_attribute("class") == "point best"
    page.press(Keys.HOME)
    ordered = sorted(NEAR, key=lambda name: VALUES[name]["accuracy"])
    for name in ordered[:2]:
        assert page.focused().get_attribute("data-trial") == name
        assert page.one(".tip strong").text == name
        page.press(Keys.ARROW_RIGHT)
    page.press(Keys.ENTER)
    assert page.one(".panel h4").text == "Reliability of focal/0001" and ordered[2] == "focal/0001"
    page.press(Keys.ARROW_DOWN)  # the next lower ECE
    assert page.focused().get_attribute("data-trial") == "cross_entropy/0002"
    page.press(Keys.ESCAPE)
    assert not page.one(".tip").is_displayed()
    page.press(Keys.TAB)
    # Out of the plot, into the methods.
    assert page.focused().get_attribute("name") == "cross_entropy"


def test_the_table_sorts_and_selects_by_keyboard(page: Page) -> None:
    assert page.rows() == sorted(VALUES, key=lambda name: -VALUES[name]["accuracy"])
    heads = {each.text: each for each in page.all(".trials thead th button")}
    page.driver.execute_script("arguments[0].focus()", heads["ECE as trained"])
    page.press(Keys.ENTER)
    assert page.one(".trials [aria-sort]").get_attribute("aria-sort") == "ascending"
    by_ece = sorted(VALUES, key=lambda name: VALUES[name]["ece"])
    assert page.rows() == by_ece
    page.press(Keys.ENTER)
    assert page.rows() == by_ece[::-1]
    page.driver.execute_script("arguments[0].focus()", page.one(".trials tbody a"))
    page.press(Keys.ENTER)
    assert by_ece[-1] in page.one(".panel h4").text
    assert page.focused().get_attribute("class") == "panel"


def test_the_other_sections_say_what_there_is(page: Page, approved: Approved) -> None:
    failures = page.one("#study-1-failures").text
    assert HOSTILE in failures and re.search(r"`calstudy run small --storage \S+`", failures)
    noise = page.one("#study-1-noise p").text
    assert "50%" in noise  # 1 / sqrt(2 (3 - 1))
    shrinkage = page.one("#study-1-confirmation").text
    # As `sizes_of` says; accuracy fell by 0.03.
    assert "+0.0050" in shrinkage and "+0.0300" in shrinkage
    assert "\N{MINUS SIGN}" not in shrinkage
    compares = page.sentence("#study-1-confirmation", "359 samples with 359")
    (noisy,) = (line for line in shrinkage.splitlines() if "5,000 samples" in line)
    assert "noisy" in noisy and "3 dropped" in noisy
    approved(f"{noise}\n{compares}\n{noisy}")
    reproduce = page.one("#study-1-reproduce").text
    assert "calstudy confirm small --trial focal/0001 --seeds 3 --storage /" in reproduce


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_stands_out_in_both_schemes(page: Page, scheme: str) -> None:
    page.media(scheme=scheme)
    paper = luminance(page.style("body", "backgroundColor"))
    assert (paper < 0.05) == (scheme == "dark")
    for selector in ("body", "figcaption", ".fold > summary", ".facts dt"):
        ink = luminance(page.style(selector, "color"))
        # WCAG 2.2, 1.4.3.
        assert (max(paper, ink) + 0.05) / (min(paper, ink) + 0.05) >= 4.5, selector


def luminance(colour: str) -> float:
    """Relative luminance of `rgb(1, 2, 3)`. WCAG 2.2."""
    channels = [int(found) / 255 for found in re.findall(r"\d+", colour)[:3]]
    red, green, blue = (
        c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels
    )
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def test_on_paper_it_is_light_whole_and_without_controls(page: Page) -> None:
    page.media("print", "dark")
    assert luminance(page.style("body", "color")) < 0.05
    assert not any(
        node.is_displayed() for node in page.all(".controls, .choose, .key input, .more, .copy")
    )
    assert page.one(".key").is_displayed() and page.one(".trials").is_displayed()
    page.media()
    page.driver.execute_script(
        "document.querySelector('.fold').open = false;"
        "addEventListener('beforeprint', () => { window.unfolded ="
        " document.querySelector('.fold').open })"
    )
    printed = page.driver.execute_cdp_cmd("Page.printToPDF", {})
    assert base64.b64decode(printed["data"]).startswith(b"%PDF")
    assert page.driver.execute_script(
        "return [window.unfolded, document.querySelector('.fold').open]"
    ) == [
        True,
        False,
    ]


@pytest.mark.parametrize("name", ["report.html", "answer.html", "drawn.html", "first.html"])
@pytest.mark.parametrize("pixels", [360, 800, 1900])
def test_nothing_leaves_the_screen(page: Page, file: Path, pixels: int, name: str) -> None:
    page.width(pixels)
    page.open(file.with_name(name))
    widths = "const page = document.documentElement; return [page.scrollWidth, page.clientWidth]"
    scrolled, shown = page.driver.execute_script(widths)
    assert scrolled <= shown == pixels
    assert abs(page.one(".plot svg").size["width"] - page.one(".plot").size["width"]) < 2


def test_the_answer_and_the_test_results_are_the_first_screen(page: Page, file: Path) -> None:
    page.open(file.with_name("answer.html"))
    size = {"width": 1280, "height": 800, "deviceScaleFactor": 1, "mobile": False}
    page.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    assert page.one(".answer .abstract").text == "Take focal/0001."
    ends = (
        "return [...document.querySelectorAll(arguments[0])].map((each) =>"
        " each.getBoundingClientRect().bottom)"
    )
    ordered = [
        page.driver.execute_script(ends, each)
        for each in (".answer .abstract", ".confirmed tbody tr")
    ]
    assert ordered == sorted(ordered) and max(map(max, ordered)) < 800
    headings = [each.text for each in page.all(".fold > summary h3")]
    assert headings[:3] == ["Test results", "Front and reliability", "Trials"]
    command = page.one(".next code")
    assert command.text == ANSWER["next"][0][0] and "registers the model" in page.one(".next").text
    page.one(".next .copy").click()
    assert page.driver.execute_script("return String(getSelection())") == command.text


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_model_its_values_and_the_front_are_seen_at_once(
    page: Page, file: Path, scheme: str
) -> None:
    page.media(scheme=scheme)
    page.open(file.with_name("first.html"), folded=True)
    size = {"width": 1280, "height": 800, "deviceScaleFactor": 1, "mobile": False}
    page.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    ends = "return arguments[0].getBoundingClientRect().bottom"
    for each in (".name", ".sure", ".forest", ".calm", ".screen .next", ".fold"):
        assert page.driver.execute_script(ends, page.one(each)) < 800, each
    assert page.one("h1").text == "small" and page.one(".name").text == "focal/0001"
    page.one(".screen .next .copy").click()
    copied = page.driver.execute_script("return String(getSelection())")
    assert copied == page.one(".screen .next code").text == SAID.next[0][0]
    paper = luminance(page.style("body", "backgroundColor"))
    for selector, name, least in (
        (".tried", "stroke", 3 if scheme == "dark" else 2),
        (".calm .taken .dot", "fill", 3),
        (".calm .default .dot", "fill", 3),
        (".who.taken", "color", 4.5),
        (".sure p", "color", 4.5),
    ):
        ink = luminance(page.style(selector, name))
        assert (max(paper, ink) + 0.05) / (min(paper, ink) + 0.05) >= least, selector


def test_test_ece_is_seen_without_scrolling_and_names_stay(page: Page) -> None:
    heads = [each.text.replace("\n", " ") for each in page.all(".confirmed thead tr:last-child th")]
    # Accuracy, then ECE.
    assert heads[1:4] == ["", "as trained objective", "after temperature served"]
    groups = [
        each.text.replace("\n", " ") for each in page.all(".confirmed thead th[scope=colgroup]")
    ]
    assert groups == ["accuracy objective", "ECE", "NLL"]
    cells = page.all(".confirmed tbody tr:first-child td")[:3]
    assert max(cell.rect["x"] + cell.rect["width"] for cell in cells) < 1280
    page.width(400)
    box, scrolled = (
        page.one("#study-1-trials .scroll"),
        "arguments[0].scrollLeft = 300; return arguments[0].scrollLeft",
    )
    assert page.driver.execute_script(scrolled, box) == 300
    names = "return document.querySelector('.trials tbody th').getBoundingClientRect().left"
    assert page.driver.execute_script(names) == pytest.approx(box.rect["x"], abs=1)


def test_a_metric_without_an_interval_says_why(page: Page, approved: Approved) -> None:
    page.driver.execute_script("document.querySelector('[data-row=\"focal/0001\"] a').click()")
    assert "No interval" not in page.one(".panel").text  # the made ones are of every metric
    study = json.loads(page.one("#data").get_attribute("textContent"))["studies"][0]
    found = next(trial for trial in study["trials"] if not trial["front"])
    reasons = page.driver.execute_script(
        """const [study, name, wrong] = arguments;
        const trial = study.trials.find((each) => each.name === name);
        study.metrics.find((each) => each.name === "mce").resampled = false;
        const sentences = () => withoutInterval(page, study, { measures: measures(study) }, trial);
        trial.intervals = {};
        const off = sentences();
        trial.front = true;
        trial.raw.bins = [[14, 400, 0.9, 400 - wrong, 390, 400]];
        return [off, sentences()]""",
        study,
        found["name"],
        4,
    )
    assert "accuracy, ECE" in reasons[0][0] and len(reasons[0]) == 3
    assert " MCE" in reasons[0][2] and reasons[1][1] == reasons[0][2]
    assert "NLL, Brier score" in reasons[1][0] and "fewer than 5 " in reasons[1][0]
    approved("\n".join([*reasons[0], *reasons[1]]))


def test_the_model_to_take_is_marked_in_tables_and_figures(page: Page, file: Path) -> None:
    page.open(file.with_name("first.html"))
    rows = page.all(".trials tbody tr.taken")
    assert [row.get_attribute("data-row") for row in rows] == [SAID.trial]
    assert rows[0].find_element(CSS, ".take").get_attribute("title") == "model to take"
    assert page.one(".plot .take").text == page.one(".panel .take").text == "model to take"


def test_a_floor_is_shown_with_its_error_and_explained(page: Page, approved: Approved) -> None:
    """In the table of trials, beside the diagram, when pointed at, and with the test results."""
    (row,) = (
        row for row in page.all(".trials tbody tr") if row.get_attribute("data-row") == "focal/0001"
    )
    (value,) = row.find_elements(CSS, ".floored")
    assert value.text == "0.020 [0.010, 0.030]"
    page.driver.execute_script("arguments[0].focus()", value)
    assert value.text == "0.020 [0.010, 0.030]\nfloor 0.013 [0.008, 0.019]"
    page.driver.execute_script("document.querySelector('[data-row=\"focal/0001\"] a').click()")
    (ece,) = (line for line in page.all(".panel .numbers tbody tr") if line.text.startswith("ECE"))
    assert [each.get_attribute("textContent") for each in ece.find_elements(CSS, ".floor")] == [
        "floor 0.013 [0.008, 0.019]",
        "floor 0.023 [0.018, 0.029]",
    ]
    ActionChains(page.driver).move_to_element(page.point("focal/0000")).perform()
    assert "0.030 [0.020, 0.040], floor 0.013 [0.008, 0.019]" in page.one(".tip").text
    first, second = page.all(".confirmed tbody tr")
    floors = [str(each.get_attribute("textContent")) for each in first.find_elements(CSS, ".floor")]
    assert [floor[:11] for floor in floors] == ["floor 0.013", "floor 0.023"]
    assert not second.find_elements(CSS, ".floor")
    (note,) = re.findall(r"Floor: .*", page.one("#study-1-confirmation").text)
    assert "90%" in note and "Floor: " not in page.one(".front figcaption").text
    approved(note)


def test_a_word_is_explained_on_hover_and_on_focus(page: Page) -> None:
    assert not page.one(".meaning").is_displayed()
    ActionChains(page.driver).move_to_element(
        page.one("#study-1-confirmation .term[data-term=ece]")
    ).perform()
    page.wait(lambda: page.one(".meaning").text.startswith("ECE Expected calibration error"))
    page.press(Keys.ESCAPE)
    assert not page.one(".meaning").is_displayed()
    corner = ActionBuilder(page.driver)
    # Focus scrolls the page: no other word must come under the pointer.
    corner.pointer_action.move_to_location(1, 1)
    corner.perform()
    front = page.one(".term[data-term=front][tabindex]")
    page.driver.execute_script("arguments[0].focus()", front)
    page.wait(lambda: page.one(".meaning").text.startswith("Pareto front"))
    described = page.driver.find_element("id", str(front.get_attribute("aria-describedby")))
    assert str(described.get_attribute("textContent")) in page.one(".meaning").text
    stops = [each.get_attribute("data-term") for each in page.all("#study-1 .term[tabindex]")]
    assert len(stops) == len(set(stops))  # a word is one stop of the Tab key, wherever it stands
    heads = {each.text: each for each in page.all(".trials thead th button")}
    page.driver.execute_script("arguments[0].focus()", heads["NLL as trained"])
    page.wait(lambda: page.one(".meaning").text.startswith("NLL Negative log-likelihood"))


def test_curves_and_searched_values_are_drawn_in_the_readers_colours(
    page: Page, file: Path
) -> None:
    page.open(file.with_name("drawn.html"))
    shown = {part: page.all(f"#study-1-{part} svg") for part in ("growth", "learning", "searched")}
    assert [len(found) for found in shown.values()] == [1, 1, 2]
    assert "importance" in shown["searched"][0].text and "No importances: too few" in (
        " ".join(shown["searched"][1].text.split())
    )
    axis = "#study-1-growth svg path[stroke=currentColor]"
    light = page.one(axis).value_of_css_property("stroke")
    page.media(scheme="dark")
    assert page.one(axis).value_of_css_property("stroke") != light


def test_a_long_page_unpacks_its_data(
    page: Page, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    short = page.one(".trials").text
    monkeypatch.setattr("study.report.html.LONGEST", 0)
    plain = json.loads(page.one("#data").get_attribute("textContent"))
    packed = file.with_name("packed.html")
    write_page(packed, plain)
    page.open(packed)
    page.wait(lambda: len(page.all(".fold")) > 0)
    page.driver.execute_script("document.querySelector('#study-1-trials').open = true")
    page.wait(lambda: page.one(".trials").text == short)
    assert 'type="application/gzip"' in packed.read_text()


def test_a_page_of_a_running_study_reloads_and_stays_where_it_was(page: Page, file: Path) -> None:
    plain = json.loads(page.one("#data").get_attribute("textContent"))
    plain["studies"][0]["stalled"] = ["focal: it stalled.", "Repeat it with `--trials 12`."]
    watched = file.with_name("watched.html")
    write_page(watched, {**plain, "every": 2})
    page.open(watched)
    page.wait(lambda: "reloads every 2 seconds" in page.one(".kicker").text)
    page.wait(lambda: page.one(".stalled").text == "focal: it stalled. Repeat it with --trials 12.")
    page.wait(lambda: page.one(".stalled code").text == "--trials 12")
    page.driver.execute_script(
        "document.querySelector('[data-row=\"focal/0000\"] a').click(); scrollTo(0, 900)"
    )
    write_page(watched, {**plain, "made": "later"})  # the last one
    page.wait(lambda: "later" in page.one("#foot").text)
    assert (
        page.driver.execute_script("return scrollY") == 900
        and page.one(".panel .trial").text == "focal/0000"
    )
    assert page.one(".kicker").text == "calstudy report"


def test_two_studies_one_of_them_empty(page: Page, file: Path, approved: Approved) -> None:
    page.open(file.with_name("two.html"))
    assert [each.text for each in page.all(".index a")] == ["small", "nothing"]
    assert "calstudy report small --bootstrap 1000" in page.one("#study-1 .front figcaption").text
    for selector in ("#study-2-front", "#study-1 .front figcaption"):
        approved(page.one(selector).text)
    assert not page.all("#study-1-confirmation")  # nothing was measured on test


def test_no_error_no_request_and_nothing_of_a_study_was_run(page: Page) -> None:
    """Of all the tests above: they share one browser."""
    assert page.driver.get_log("browser") == []
    messages = [
        json.loads(entry["message"])["message"] for entry in page.driver.get_log("performance")
    ]
    asked = {
        m["params"]["request"]["url"]
        for m in messages
        if m["method"] == "Network.requestWillBeSent"
    }
    assert asked and all(url.startswith("file://") and url.endswith(".html") for url in asked)
    assert page.driver.title == "small: study report" and page.all("img") == []
