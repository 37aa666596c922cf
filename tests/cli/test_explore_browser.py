"""On a page of `explore` in Chromium, images and numbers follow the sliders without network requests."""

from __future__ import annotations

import io
import json
import os
import re
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from numbered_records import encode_numbered, square_crops
from numpy.typing import NDArray
from PIL import Image
from tolerance_rows import N, measured

from pcr_exp.analysis.plan_page import report_plan
from pcr_exp.analysis.tolerance_page import write_tolerance
from pcr_exp.cli.explore import main
from pcr_exp.config.loader import StorageConfig
from pcr_exp.config.throughput import PlanConfig, PlannedDataConfig
from pcr_exp.images.decode import decode
from pcr_exp.measuring.quality import measure_quality
from pcr_exp.records.reader import RecordSet
from pcr_exp.records.single import extract_image, find_image
from pcr_exp.storage.local import LocalStorage

webdriver = pytest.importorskip(
    "selenium.webdriver", reason="selenium is not here: pip install 'pcr-exp[dev]'"
)
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
DRIVER = shutil.which("chromedriver")

pytestmark = [
    pytest.mark.program,
    pytest.mark.usefixtures("light_figures"),
    pytest.mark.skipif(
        CHROMIUM is None or DRIVER is None,
        reason="NO PAGE WAS LOOKED AT: there is no Chromium; apt-get install chromium chromium-driver",
    ),
]

PHONE_PX, DESKTOP_PX = 390, 1280
READ = ("h1", ".lead", "small", ".facts dt", ".caption span:last-child", "td", "summary", "tr.chosen td", "a")
CONTRASTS = """
const linear = (one) => one <= 0.04045 ? one / 12.92 : ((one + 0.055) / 1.055) ** 2.4;
const channels = (text) => text.match(/[\\d.]+/g).slice(0, 3).map((one) => linear(one / 255));
const light = (text) => channels(text).reduce((sum, one, i) => sum + one * [0.2126, 0.7152, 0.0722][i], 0);
const behind = (one) => {
    const own = getComputedStyle(one).backgroundColor;
    return /, 0\\)$/.test(own) && one.parentElement ? behind(one.parentElement) : own;
};
const contrast = (one) => {
    const [high, low] = [light(getComputedStyle(one).color), light(behind(one))].sort((a, b) => b - a);
    return (high + 0.05) / (low + 0.05);
};
return arguments[0].flatMap((which) => [...document.querySelectorAll(which)].slice(0, 5)).map(contrast);
"""
"""Script that returns the contrast of text to the nearest background behind it (WCAG 2.1, 1.4.3)."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder with records, a tolerance measurement of them in `task`, and page.html."""
    out = tmp_path_factory.mktemp("browser")
    jpegs = square_crops(((14 * i, 11 * i) for i in range(12)), 160, 90)
    encode_numbered(jpegs, out, images_per_record=5, side=["left", "right"])
    rows = measured({(0, 2): 9, (0, 0): 4, (1, 2): 2}, label="side")
    write_tolerance(out / "task", replace(rows, ids=[f"{i:03d}.jpg" for i in range(N)]), {})
    where = [str(out / "records"), "-o", str(out / "page.html")]
    main([*where, "--tolerance", str(out / "task"), "--images", "8"])
    return out


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    for flag in ("--headless=new", "--disable-gpu", *(["--no-sandbox"] if os.geteuid() == 0 else [])):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    browser = webdriver.Chrome(options=options, service=webdriver.ChromeService(DRIVER))
    browser.set_script_timeout(20)
    yield browser
    browser.quit()


@pytest.fixture
def page(folder: Path, chromium: Any) -> Any:
    """The page, opened from disk at desktop width."""
    look(chromium, DESKTOP_PX)
    chromium.get_log("performance"), chromium.get_log("browser")
    chromium.get((folder / "page.html").as_uri())
    settle(chromium)
    return chromium


def look(browser: Any, width_px: int, scheme: str = "light") -> None:
    size = {"width": width_px, "height": 900, "deviceScaleFactor": 1, "mobile": width_px == PHONE_PX}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    media = {"features": [{"name": "prefers-color-scheme", "value": scheme}]}
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", media)


def settle(browser: Any) -> None:
    """Wait until every image element shows the wanted image, decoded."""
    browser.execute_async_script(
        """
        const done = arguments[0];
        const isThere = (image) => image.src === image.dataset.wanted && image.complete && image.naturalWidth;
        const images = () => [...document.querySelectorAll("img[data-wanted]")];
        const wait = () => images().every(isThere) ? done() : setTimeout(wait, 20);
        wait();"""
    )


def slide(browser: Any, selector: str, value: object) -> None:
    """Set a field or slider as a user would, and wait for the images."""
    browser.execute_script(
        "const it = document.querySelector(arguments[0]); it.value = arguments[1];"
        "it.dispatchEvent(new Event('input', {bubbles: true}));",
        selector,
        str(value),
    )
    settle(browser)


def texts(browser: Any, selector: str) -> list[str]:
    found: list[str] = browser.execute_script(
        "return [...document.querySelectorAll(arguments[0])].map((one) => one.textContent);", selector
    )
    return found


def values(browser: Any, selector: str) -> list[float]:
    """Return the exact numbers of elements that show rounded ones."""
    found = browser.execute_script(
        "return [...document.querySelectorAll(arguments[0])].map((one) => one.value);", selector
    )
    return [float(one) for one in found]


def pixels(browser: Any) -> list[list[int]]:
    """Return the RGBA pixels of the gallery's images as the browser decoded them."""
    found: list[list[int]] = browser.execute_script(
        """
        return [...document.querySelectorAll("#gallery img:not(.whole)")].map((image) => {
            const canvas = new OffscreenCanvas(image.naturalWidth, image.naturalHeight).getContext("2d");
            canvas.drawImage(image, 0, 0);
            return [...canvas.getImageData(0, 0, image.naturalWidth, image.naturalHeight).data];
        });"""
    )
    return found


def screenshot(browser: Any, selector: str) -> NDArray[np.int64]:
    """Return a screenshot of an element, RGB [height, width, 3]."""
    png = browser.find_element("css selector", selector).screenshot_as_png
    return np.asarray(Image.open(io.BytesIO(png)).convert("RGB")).astype(np.int64)


def data_of(page: Path) -> dict[str, Any]:
    (found,) = re.findall(r'id="data">(.*?)</script>', page.read_text(), re.DOTALL)
    return dict(json.loads(found))


def test_the_slider_changes_pictures_and_numbers(page: Any, folder: Path) -> None:
    """Images are those of the chosen prefix: far closer to our decode of it than of another group."""
    records = RecordSet(LocalStorage(folder / "records"), "pcr")
    quality = measure_quality(records, range(1, 11), 12).set_index(["id", "group"])
    titles = "return [...document.querySelectorAll('#gallery button')].map((one) => one.title);"
    ids = page.execute_script(titles)
    assert len(ids) == 8

    def decoded(name: str, group: int) -> NDArray[np.int64]:
        _, record, i = find_image([(records, range(len(records.index.records)))], name)
        jpeg = extract_image(records, record, i, group, pieces_only=False)
        return decode(jpeg, name, 10**6).astype(np.int64)

    for group in (1, 2, 5, 10):
        slide(page, "#group", group - 1)
        assert texts(page, "#group-number") == [str(group)]
        rows = quality.loc[[(name, group) for name in ids]]
        assert values(page, "#gallery .caption span:first-child data") == rows["bytes"].tolist()
        similarities = values(page, "#gallery .caption span:last-child data")
        assert similarities == pytest.approx(rows["ms_ssim"].tolist(), abs=1e-6)
        assert values(page, "#dial-bytes data") == pytest.approx([records.index.mean_prefix_bytes(group)])
        for name, shown in zip(ids, pixels(page), strict=True):
            picture = np.array(shown).reshape(160, 160, 4)[..., :3]
            off = np.abs(picture - decoded(name, group)).mean()
            other = 9 if group == 10 else group + 1
            assert off < 1 and off < 0.4 * np.abs(picture - decoded(name, other)).mean()


def test_the_crop_and_the_difference_are_shown_by_switches(page: Any) -> None:
    slide(page, "#group", 0)
    whole = pixels(page)
    page.execute_script("document.querySelector('[value=crop]').click();")
    settle(page)
    crops = pixels(page)
    assert len(crops[0]) == 4 * 64 * 64 != len(whole[0])
    assert page.execute_script("return document.querySelectorAll('.frame.difference').length;") == 0
    page.execute_script("document.getElementById('difference').click();")
    settle(page)
    shown = page.execute_script(
        "return [...document.querySelectorAll('#gallery .frame')].map((one) =>"
        " [getComputedStyle(one.lastChild).mixBlendMode, getComputedStyle(one.lastChild).display,"
        "  one.firstChild.src !== one.lastChild.src]);"
    )
    assert shown == [["difference", "block", True]] * 8
    slide(page, "#group", 9)
    same = page.execute_script(
        "return [...document.querySelectorAll('#gallery .frame')]"
        ".every((one) => one.firstChild.src === one.lastChild.src);"
    )
    assert same, "all scans differ in nothing from all scans"


def test_the_difference_is_what_is_said_of_it(page: Any) -> None:
    """The difference view shows four times the pixel differences of an image at its own size."""
    frame = "#gallery .card:first-child .frame"
    page.execute_script("const it = document.querySelector(arguments[0]); it.style.width = '160px';", frame)
    seen = []
    for place in (0, 9):
        slide(page, "#group", place)
        seen.append(np.array(pixels(page)[0]).reshape(160, 160, 4)[..., :3])
    page.execute_script("document.getElementById('difference').click();")
    slide(page, "#group", 0)
    shown, wanted = screenshot(page, frame), np.minimum(4 * np.abs(seen[0] - seen[1]), 255)
    inside = slice(8, -8)  # excludes the rounded corners of the frame
    assert wanted[inside, inside].max() > 100
    assert np.abs(shown - wanted)[inside, inside].max() <= 4


def test_pictures_lie_as_training_sees_them(tmp_path: Path, chromium: Any) -> None:
    """The page ignores EXIF orientation, as the loader does and other viewers do not."""
    exif = Image.Exif()
    exif[0x0112] = 6
    halves = Image.new("RGB", (64, 64), "red")
    halves.paste("blue", (32, 0, 64, 64))
    file = io.BytesIO()
    halves.save(file, "JPEG", quality=95, exif=exif)
    encode_numbered([file.getvalue()], tmp_path, images_per_record=1)
    main([str(tmp_path / "records"), "-o", str(tmp_path / "page.html")])
    chromium.get((tmp_path / "page.html").as_uri())
    settle(chromium)
    slide(chromium, "#group", 9)
    shown = screenshot(chromium, "#gallery .frame")
    middle = shown.shape[0] // 2
    assert shown[middle, 20].argmax() == 0 and shown[middle, -20].argmax() == 2, "red is at the left"


@pytest.mark.parametrize(
    ("limit", "storage"),
    [
        ("bandwidth", {"bandwidth_mib_per_s": 3.0, "latency_ms": 0.0}),
        ("requests", {"bandwidth_mib_per_s": 400.0, "latency_ms": 120.0, "requests_per_s": 50.0}),
        ("seeks", {"bandwidth_mib_per_s": 20.0, "latency_ms": 0.5, "seek_ms": 8.0}),
        ("latency", {"bandwidth_mib_per_s": 90_000.0, "latency_ms": 5000.0}),
        ("training", {"bandwidth_mib_per_s": 90_000.0, "latency_ms": 0.0}),
    ],
)
@pytest.mark.parametrize("cores", [0.02, 64])
def test_rates_and_dollars_are_those_of_the_plan_on_disk(
    page: Any, folder: Path, tmp_path: Path, limit: str, storage: dict[str, float], cores: float
) -> None:
    fields = {"bandwidthMibPerS": "bandwidth_mib_per_s", "latencyMs": "latency_ms", "seekMs": "seek_ms"}
    for name, key in {**fields, "requestsPerS": "requests_per_s"}.items():
        slide(page, f"#field-{name}", storage.get(key, "" if key == "requests_per_s" else 0))
    settings = {
        "trainImagesPerS": 700,
        "dollarsPerGb": 0.12,
        "dollarsPer1000Requests": 0.0004,
        "cores": cores,
    }
    for name, value in settings.items():
        slide(page, f"#field-{name}", value)
    rates = data_of(folder / "page.html")["epoch"]["decodeImagesPerS"]
    report_plan(
        PlanConfig(
            name="page",
            workers=1,
            cores_per_worker=cores,
            model_images_per_s={"it": 700},
            decode_images_per_s={"baseline": 1}
            | {f"group_{g}": rate for g, rate in enumerate(rates, start=1)},
            storage=StorageConfig(name="it", **storage),  # type: ignore[arg-type]
            data=PlannedDataConfig(name="it", records=str(folder / "records")),
            cost_per_gb=0.12,
            cost_per_1000_requests=0.0004,
            max_workers=1,
            out=str(tmp_path),
        )
    )
    table = pd.read_csv(tmp_path / "predictions.csv")
    table = table[table["scan"] != "baseline"]
    assert len(table) == 10
    row = "#storage-numbers tr"
    assert values(page, f"{row} td:nth-child(3) data") == pytest.approx(
        table["images_per_s"].tolist(), rel=1e-12
    )
    assert values(page, f"{row} td:nth-child(5) data") == pytest.approx(
        (1 / table["epochs_per_h"]).tolist(), rel=1e-12
    )
    assert values(page, f"{row} td:nth-child(6) data") == pytest.approx(
        table["dollars_per_epoch"].tolist(), rel=1e-12
    )
    words = {"compute": "training", "decode": "decoding", "in_flight": "latency"}
    assert ("decoding" if cores < 1 else limit) in texts(page, f"{row} .limit")
    assert texts(page, f"{row} .limit") == [words.get(bound, bound) for bound in table["bound"]]


def test_the_task_is_that_of_its_table_and_a_click_shows_what_is_lost(page: Any, folder: Path) -> None:
    table = pd.read_csv(folder / "task" / "answers.csv")
    for column, use in ((3, "full"), (6, "same")):
        rows = table[table["deployment"] == use].sort_values("train_group")
        cells = "#task-numbers tr td:nth-child({}) data"
        assert values(page, cells.format(column)) == pytest.approx(rows["top1"].tolist(), rel=1e-12)
        assert values(page, cells.format(column + 1)) == pytest.approx(rows["loss"].tolist(), rel=1e-12)
    page.execute_script(
        "document.querySelector('#chart-full [data-group=\"1\"]').dispatchEvent(new Event('click'));"
    )
    settle(page)
    assert texts(page, "#group-number") == ["1"], "all panels follow"
    assert values(page, "#mistakes .note data") == [9, 0]
    assert (
        len(texts(page, "#mistakes .card")) == 8
        and texts(page, "#mistakes .card")[0] == "lefttaken for right"
    )
    page.execute_script(
        "document.querySelector('#chart-same [data-group=\"1\"]').dispatchEvent(new Event('click'));"
    )
    assert values(page, "#mistakes .note data") == [4, 0]
    slide(page, "#group", 2)
    assert texts(page, "#mistakes") == ["Group 3 was not measured."]


def test_keys_move_every_control_and_readers_are_told(page: Any) -> None:
    keys = pytest.importorskip("selenium.webdriver.common.keys").Keys
    slider = page.find_element("id", "group")
    slide(page, "#group", 0)
    slider.send_keys(keys.ARROW_RIGHT)
    assert slider.get_attribute("aria-valuetext").startswith("scan group 2, ")
    point = page.find_element("css selector", "#chart-full [tabindex='0']")
    point.send_keys(keys.ARROW_RIGHT)
    now = page.switch_to.active_element
    assert now.get_attribute("aria-checked") == "true" and texts(page, "#group-number") == ["5"]
    assert now.get_attribute("aria-label").startswith("Group 5, used at all scans: top-1 99.5 %")
    page.find_element("css selector", "#storage-numbers tr:nth-child(7) button").send_keys(keys.ENTER)
    now = page.switch_to.active_element
    assert (now.text, now.get_attribute("aria-pressed")) == ("7", "true")
    page.find_element("css selector", "#gallery button").send_keys(keys.ENTER)
    settle(page)
    dialog = page.find_element("css selector", "dialog[open] input.group")
    dialog.send_keys(keys.ARROW_LEFT)
    assert texts(page, "#large-numbers")[0].startswith("group 6: ")
    dialog.send_keys(keys.ESCAPE)
    assert not page.find_elements("css selector", "dialog[open]")
    unnamed = page.execute_script(
        """
        const controls = "button, input, select, [role=radio], img:not([aria-hidden])";
        const nameOf = (one) =>
            one.getAttribute("aria-label") || one.textContent || one.alt || one.labels?.length;
        return [...document.querySelectorAll(controls)].filter((one) => !nameOf(one)).length;"""
    )
    assert unnamed == 0, "each control has a name"


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width_px", [PHONE_PX, DESKTOP_PX])
def test_it_fits_and_can_be_read_on_a_phone_and_in_the_dark(page: Any, width_px: int, scheme: str) -> None:
    look(page, width_px, scheme)
    page.execute_script("for (const one of document.querySelectorAll('details')) one.open = true;")
    settle(page)
    widths = "const root = document.documentElement; return root.scrollWidth - root.clientWidth;"
    assert page.execute_script(widths) == 0, "nothing is cut off at the right"
    table = page.find_element("css selector", "#storage .scroll")
    assert page.execute_script("return arguments[0].scrollWidth - arguments[0].clientWidth;", table) == 0
    contrasts = page.execute_script(CONTRASTS, list(READ))
    assert len(contrasts) > 20 and min(contrasts) >= 4.5, "WCAG 2, level AA"


def test_nothing_is_asked_for_and_nothing_is_complained_of(page: Any, folder: Path) -> None:
    for place in range(10):
        slide(page, "#group", place)
    page.execute_script(
        "document.querySelector('[value=crop]').click(); document.getElementById('difference').click();"
    )
    settle(page)
    page.find_element("css selector", "#gallery button").click()
    events = [json.loads(entry["message"])["message"] for entry in page.get_log("performance")]
    asked = [
        one["params"]["request"]["url"] for one in events if one["method"] == "Network.requestWillBeSent"
    ]
    assert (folder / "page.html").as_uri() in asked, "requests are seen at all"
    others = {url for url in asked if not url.startswith(("blob:", "data:"))} - {
        (folder / "page.html").as_uri()
    }
    assert others == set()
    assert page.get_log("browser") == []


def test_a_page_without_a_task_works_too(folder: Path, tmp_path: Path, chromium: Any) -> None:
    main([str(folder / "records"), "-o", str(tmp_path / "page.html"), "--images", "2"])
    chromium.get_log("browser")
    chromium.get((tmp_path / "page.html").as_uri())
    settle(chromium)
    slide(chromium, "#group", 4)
    assert (
        len(texts(chromium, "#storage-numbers tr")) == 10
        and "Nothing was measured" in texts(chromium, "#task")[0]
    )
    assert chromium.get_log("browser") == []
