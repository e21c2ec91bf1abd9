"""What can be taken from a page: its tables as CSV, read by Python's own reader, and the address
of a trial."""

import csv
import io
from pathlib import Path
from typing import Any

import pytest

from study.report.html import write_page
from study.report.page_data import gather, gather_page
from study.store.trials import TrialRecord
from tests.study.report.test_page import CSS, VALUES, ActionChains, Driver, Keys, Page
from tests.study.report.test_page import browser as browser  # fixtures
from tests.study.report.test_page import file as file
from tests.study.report.test_page import page as page
from tests.study.report.test_page import records as records
from tests.study.report_studies import HOSTILE, small

pytestmark = pytest.mark.slow


@pytest.fixture
def downloads(browser: Driver, tmp_path: Path) -> Path:
    where = {"behavior": "allow", "downloadPath": str(tmp_path)}
    browser.execute_cdp_cmd("Browser.setDownloadBehavior", where)
    return tmp_path


def downloaded(page: Page, folder: Path, label: str, within: str = "article") -> str:
    """The text of the table's file, and nothing else is downloaded."""
    before = set(folder.iterdir())
    page.one(f"{within} .csv[aria-label='Download as CSV: {label}']").click()

    def whole() -> list[Path]:
        """The browser makes an empty file of that name before it writes."""
        found = set(folder.iterdir()) - before
        return [file for file in found if file.suffix == ".csv" and file.stat().st_size > 0]

    page.wait(lambda: len(whole()) == 1)
    (file,) = whole()
    return file.read_text()


def rows(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


def test_the_trials_are_all_there_with_every_value(
    page: Page, downloads: Path, records: list[TrialRecord]
) -> None:
    found = rows(downloaded(page, downloads, "Trials"))
    assert [row["trial"] for row in found] == [record.name for record in records]
    for row, record in zip(found, records, strict=True):
        for name, value in record.metrics.items():
            assert float(row[name]) == pytest.approx(value, rel=1e-5)
        for path, setting in record.params.items():
            assert float(row[path]) == pytest.approx(float(setting))
        assert row["study"] == "small"
    focal = {row["trial"]: row for row in found}["focal/0000"]
    assert (float(focal["accuracy_low"]), float(focal["accuracy_high"])) == (0.92, 0.94)
    assert [path.name for path in downloads.iterdir()] == ["small-trials.csv"]


def test_what_is_hidden_or_not_shown_is_downloaded_too(page: Page, downloads: Path) -> None:
    page.one("input[name=focal]").click()
    assert len(page.rows()) < len(VALUES)
    assert len(rows(downloaded(page, downloads, "Trials"))) == len(VALUES)


def test_every_table_has_its_button(page: Page, downloads: Path) -> None:
    for details in page.all("details"):
        page.driver.execute_script("arguments[0].open = true", details)
    tables = [table for table in page.all("table") if table.is_displayed()]
    assert len(page.all(".csv")) == len(tables) > 5
    buttons = [str(each.get_attribute("aria-label")) for each in page.all(".csv")]
    assert len(set(buttons)) == len(buttons)
    for button in buttons:
        found = rows(downloaded(page, downloads, button.removeprefix("Download as CSV: ")))
        assert found and all(None not in row and None not in row.values() for row in found)


def test_a_confirmed_row_has_its_means_as_numbers(page: Page, downloads: Path) -> None:
    plain = page.driver.execute_script("return page.studies[0]")
    names = [metric["name"] for metric in plain["metrics"]]
    found = rows(downloaded(page, downloads, "Test results"))
    for row, wanted in zip(found, plain["confirmation"]["rows"], strict=True):
        assert (row["model"], row["role"]) == (wanted["name"], wanted["role"])
        measured = wanted["test"][names.index("ece")] or [None, None]
        cells = ["" if each is None else str(each) for each in measured]
        assert [row["test_ece"], row["test_ece_std"]] == cells
    assert any(row["test_ece_std"] for row in found)


NASTY = ["=1+1", "+1", "-1", "@SUM(A1)", 'a "b", c', "two\nlines", "Ünïcode", "\t=1"]


def test_a_text_stays_text_in_a_spreadsheet(page: Page) -> None:
    ask = "return csvText({columns: arguments[0], rows: [arguments[1]]})"
    text = page.driver.execute_script(ask, NASTY, [-1.5, 0, None, True, 1e-7, "", 2, "=x"])
    columns, values = csv.reader(io.StringIO(text, newline=""))
    escaped = [f"'{name}" if name[0] in "=+-@\t" else name for name in NASTY]
    assert columns == escaped
    assert values == ["-1.5", "0", "", "true", "1e-7", "", "2", "'=x"]


def test_hostile_content_is_a_cell(page: Page, downloads: Path) -> None:
    (failed,) = (
        row
        for row in rows(downloaded(page, downloads, "Incomplete trials"))
        if row["state"] == "failed"
    )
    assert failed["reason"] == HOSTILE


# ---- a trial's address ---------------------------------------------------------------------------


def address(page: Page) -> str:
    return str(page.driver.execute_script("return location.hash"))


def heading(page: Page) -> str:
    return str(page.one(".panel h4").text)


def test_a_click_names_the_trial_in_the_address_and_back_goes_back(page: Page) -> None:
    first = heading(page)
    assert address(page) == ""
    ActionChains(page.driver).move_to_element(page.point("focal/0001")).click().perform()
    assert (address(page), heading(page)) == ("#trial=focal/0001", "Reliability of focal/0001")
    page.one(".trials [data-row='cross_entropy/0000'] a").click()
    assert address(page) == "#trial=cross_entropy/0000"
    assert heading(page) == "Reliability of cross_entropy/0000"
    page.driver.back()
    page.wait(lambda: heading(page) == "Reliability of focal/0001")
    assert page.point("focal/0001").get_attribute("aria-selected") == "true"
    page.driver.back()
    page.wait(lambda: heading(page) == first)
    page.driver.forward()
    page.wait(lambda: heading(page) == "Reliability of focal/0001")


def test_an_address_opens_its_trial(page: Page, file: Path) -> None:
    assert page.driver.execute_script("return scrollY") == 0
    page.driver.get("about:blank")
    page.driver.get(f"{file.as_uri()}#trial=cross_entropy/0001")
    assert heading(page) == "Reliability of cross_entropy/0001"
    (selected,) = page.all(".trials tr.selected")
    assert selected.get_attribute("data-row") == "cross_entropy/0001"
    page.wait(lambda: 0 <= page.one(".panel").rect["y"] - scrolled(page) < 450)
    assert page.one("#study-1-front").get_attribute("open")
    assert not page.one("#study-1-setup").get_attribute("open")
    page.driver.execute_script("location.hash = '#study-1-reproduce'")  # the trial stays
    page.wait(lambda: bool(page.one("#study-1-setup").get_attribute("open")))
    assert heading(page) == "Reliability of cross_entropy/0001"


def scrolled(page: Page) -> Any:
    return page.driver.execute_script("return scrollY")


@pytest.mark.parametrize("name", ["focal/9999", "", "%", "focal/0001%20<img src=x>"])
def test_an_address_of_no_trial_is_the_page(page: Page, file: Path, name: str) -> None:
    first = heading(page)
    page.driver.get("about:blank")
    page.driver.get(f"{file.as_uri()}#trial={name}")
    assert heading(page) == first


def test_of_several_studies_the_address_names_one(page: Page, file: Path, tmp_path: Path) -> None:
    study, found = small(tmp_path)
    one = gather(study, found)
    two = tmp_path / "both.html"
    write_page(two, gather_page([one, {**one, "name": "other"}], "today"))
    page.open(two)
    page.all(".trials [data-row='focal/0001'] a")[1].click()
    assert address(page) == "#trial=other:focal/0001"
    shown = page.driver.find_elements(CSS, ".panel h4")
    assert shown[1].text == "Reliability of focal/0001"
    page.driver.get("about:blank")
    page.driver.get(f"{two.as_uri()}#trial=other:focal/0001")
    assert page.all(".panel h4")[1].text == "Reliability of focal/0001"


def test_a_row_is_a_link_by_keyboard(page: Page) -> None:
    link = page.one(".trials [data-row='focal/0000'] a")
    assert str(link.get_attribute("href")).endswith("#trial=focal/0000")
    page.driver.execute_script("arguments[0].focus()", link)
    page.press(Keys.ENTER)
    assert (address(page), heading(page)) == ("#trial=focal/0000", "Reliability of focal/0000")
