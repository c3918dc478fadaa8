"""The page of a run in a real browser: it loads without a complaint, and its controls change what is drawn."""

import base64
import io
import os
import shutil
import time

import pytest

import fabemu

pytest.importorskip("plotly")
pytest.importorskip("jinja2")
webdriver = pytest.importorskip("selenium.webdriver")

from test_page import ODD, SCENARIO  # noqa: E402

from fabemu.page import write_page  # noqa: E402

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
DRIVER = shutil.which("chromedriver")
pytestmark = pytest.mark.skipif(
    CHROMIUM is None or DRIVER is None, reason="no chromium and chromedriver: apt-get install chromium chromium-driver"
)
LOADED = "return document.documentElement.dataset.ready === 'yes'"
OPTIONS = ("headless=new", "disable-gpu", "no-first-run", "disable-background-networking", "disable-component-update")


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    from selenium.webdriver.chrome.service import Service

    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    for name in (*OPTIONS, "disable-sync", "hide-scrollbars", "window-size=1280,900"):
        options.add_argument(f"--{name}")
    if hasattr(os, "geteuid") and os.geteuid() == 0:
        options.add_argument("--no-sandbox")
    options.add_argument(f"--user-data-dir={tmp_path_factory.mktemp('profile')}")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service(DRIVER))
    yield driver
    driver.quit()


@pytest.fixture(scope="module")
def opened(browser, tmp_path_factory):
    """The browser with the page of a run whose names are odd, in light."""
    folder = tmp_path_factory.mktemp("page")
    run = fabemu.run(SCENARIO, folder / "odd.run")
    write_page(run, folder / "odd.html")
    media(browser, "light")
    browser.get((folder / "odd.html").as_uri())
    deadline = time.monotonic() + 60
    while not browser.execute_script(LOADED):
        assert time.monotonic() < deadline, browser.get_log("browser")
        time.sleep(0.05)
    return browser


def media(browser, scheme):
    features = [{"name": "prefers-color-scheme", "value": scheme}]
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})


def width(browser, pixels):
    size = {"width": pixels, "height": 900, "deviceScaleFactor": 1, "mobile": False}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    time.sleep(0.3)


def fabric(browser):
    """Coordinates and names of the moving traces as they are drawn now."""
    return browser.execute_script(
        "return document.querySelector('[data-fabric] .plot').data.slice(0, 7)"
        ".map(trace => [trace.name, trace.line.color, trace.x, trace.y])"
    )


def choose(browser, selector, value):
    browser.execute_script(
        "const found = document.querySelector(arguments[0]); found.value = arguments[1];"
        "found.dispatchEvent(new Event('input')); found.dispatchEvent(new Event('change'))",
        selector,
        value,
    )


def shades(browser):
    """How many colours a picture of the window has, and its mean brightness from 0 to 1."""
    from matplotlib import image

    picture = image.imread(io.BytesIO(base64.b64decode(browser.get_screenshot_as_base64())))[..., :3]
    colours = {tuple(pixel) for pixel in (picture[::7, ::7] * 15).round().astype(int).reshape(-1, 3).tolist()}
    return len(colours), float(picture.mean())


def test_it_loads_without_a_complaint_and_without_anything_else(opened):
    assert opened.get_log("browser") == []
    assert opened.execute_script("return performance.getEntriesByType('resource').map(item => item.name)") == []
    assert opened.title == f"{ODD} – fabemu report"
    drawn = opened.execute_script(
        "return [...document.querySelectorAll('.plot')].map(plot => plot.querySelectorAll('.main-svg').length)"
    )
    assert len(drawn) == 4 and all(drawn)


def test_names_are_drawn_as_they_are(opened):
    texts = opened.execute_script(
        "return [...document.querySelectorAll('[data-fabric] .annotation-text')].map(item => item.textContent)"
    )
    assert "h1&amp;" in texts and "s<0>" in texts
    assert any('<script>alert("1")</script> & <b>bold</b>' in text for text in texts)
    options = opened.execute_script(
        "return [...document.querySelectorAll('[data-role=filter] option')].map(item => item.textContent)"
    )
    assert f"h0{ODD}" in options


def test_the_slider_moves_the_fabric(opened):
    slider = "[data-fabric] [data-role=slider]"
    choose(opened, slider, "0")
    whole = fabric(opened)
    choose(opened, slider, "1")
    first = fabric(opened)
    last = opened.execute_script(f"return document.querySelector('{slider}').max")
    choose(opened, slider, last)
    end = fabric(opened)
    assert whole != first != end
    when = opened.execute_script("return document.querySelector('[data-role=when]').textContent")
    assert when.startswith("40.00 us")
    # What is drawn in the first interval are the halves whose values are in that level.
    data = opened.execute_script("return JSON.parse(document.getElementById('data').textContent).fabric")
    levels = [0] * 6
    for value in data["values"]["use"][0][1]:
        levels[0 if value == 0 else 1 + sum(value > limit for limit in data["limits"]["use"])] += 1
    assert [len([x for x in trace[2] if x is not None]) // 2 for trace in first[1:]] == levels
    paused = sum(value > 0 for value in data["values"]["paused"][0][1])
    assert len([x for x in first[0][2] if x is not None]) // 2 == paused > 0


def test_measures_and_filters_change_the_fabric(opened):
    choose(opened, "[data-fabric] [data-role=slider]", "0")
    before = fabric(opened)
    choose(opened, "[data-fabric] [data-role=measure]", "paused")
    after = fabric(opened)
    assert after[1][0] == "not paused" and before[1][0] == "idle"
    assert [trace[1] for trace in after[2:]] != [trace[1] for trace in before[2:]]
    choose(opened, "[data-fabric] [data-role=measure]", "use")
    choose(opened, "[data-fabric] [data-role=filter]", "0.0")
    hosts = sum(len(trace[2]) for trace in fabric(opened)[1:] if trace[2] != [None])
    assert hosts == 3 * 8  # both halves of four links, with gaps
    choose(opened, "[data-fabric] [data-role=filter]", "")
    assert fabric(opened) == before


def test_choices_change_a_figure(opened):
    read = "const plot = document.querySelector('[data-figure=times] .plot');"
    first = opened.execute_script(f"{read} return [plot.data[0].x, plot.layout.xaxis.title.text]")
    choose(opened, "[data-figure=times] [data-role=choice]", "fct_ps")
    second = opened.execute_script(f"{read} return [plot.data[0].x, plot.layout.xaxis.title.text]")
    assert first[0] != second[0] and second[1] == "completion time"
    choose(opened, "[data-figure=times] [data-role=choice]", "slowdown")


def test_tables_sort_and_filter(opened):
    rows = (
        "return [...document.querySelectorAll('[data-table=ports] tbody tr')].filter(row => !row.hidden)"
        ".map(row => [row.cells[0].textContent, Number(row.cells[5].dataset.value)])"
    )
    button = "document.querySelectorAll('[data-table=ports] th button')[5].click()"
    opened.execute_script(button)
    falling = [value for _, value in opened.execute_script(rows)]
    opened.execute_script(button)
    rising = [value for _, value in opened.execute_script(rows)]
    assert falling == sorted(falling, reverse=True) and rising == sorted(rising) and falling != rising
    find = "[data-table=ports] [data-role=find]"
    choose(opened, find, "H2->")
    assert [name for name, _ in opened.execute_script(rows)] == ["h2->s1"]
    choose(opened, find, "")
    assert len(opened.execute_script(rows)) == len(rising)


def test_light_and_dark_are_drawn(opened):
    colours, bright = shades(opened)
    assert colours > 20 and bright > 0.8
    media(opened, "dark")
    time.sleep(0.5)
    colours, dark = shades(opened)
    assert colours > 20 and dark < 0.3
    # The switch on the page has the last word.
    choose(opened, "#theme", "light")
    time.sleep(0.3)
    assert shades(opened)[1] > 0.8
    choose(opened, "#theme", "auto")
    media(opened, "light")


@pytest.mark.parametrize("pixels", [1280, 700, 360])
def test_nothing_is_wider_than_the_window(opened, pixels):
    width(opened, pixels)
    assert opened.execute_script("return document.documentElement.scrollWidth") <= pixels
    wide = opened.execute_script(
        "return [...document.querySelectorAll('section')]"
        ".filter(item => item.scrollWidth > item.clientWidth + 1).length"
    )
    assert wide == 0


def test_it_prints_in_light_on_white(opened):
    width(opened, 1280)
    media(opened, "dark")
    printed = opened.execute_cdp_cmd("Page.printToPDF", {"printBackground": True, "preferCSSPageSize": True})
    assert base64.b64decode(printed["data"]).startswith(b"%PDF")
    opened.execute_script("window.dispatchEvent(new Event('beforeprint'))")
    assert opened.execute_script("return document.documentElement.dataset.shown") == "light"
    sizes = opened.execute_script("return [...document.querySelectorAll('.plot')].map(plot => plot.layout.width)")
    assert set(sizes) == {690}
    opened.execute_script("window.dispatchEvent(new Event('afterprint'))")
    assert opened.execute_script("return document.documentElement.dataset.shown") == "dark"
    media(opened, "light")
    assert opened.get_log("browser") == []
