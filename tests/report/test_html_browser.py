"""The HTML page in a real browser: names stay text, no request leaves it, and people can use it."""

import json
import shutil

import pages
import pytest

from pytest_kernelllm.report.html.page import write_page

webdriver = pytest.importorskip("selenium.webdriver", reason="needs selenium: pip install selenium")
from selenium.webdriver.common.by import By  # noqa: E402  # after the check
from selenium.webdriver.common.keys import Keys  # noqa: E402

pytestmark = pytest.mark.slow

CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")
DRIVER = shutil.which("chromedriver")

CONTRASTS = """
const channel = (v) => (v /= 255) <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4;
const parse = (text) => text.match(/[\\d.]+/g).map(Number);
const luminance = ([r, g, b]) => 0.2126 * channel(r) + 0.7152 * channel(g) + 0.0722 * channel(b);
const behind = (e) => {
  for (; e; e = e.parentElement) {
    const [r, g, b, a = 1] = parse(getComputedStyle(e).backgroundColor);
    if (a === 1) return [r, g, b];
    if (a !== 0) throw new Error("half transparent " + e.outerHTML.slice(0, 80));
  }
  throw new Error("no background");
};
const found = [];
const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
for (let node = walker.nextNode(); node; node = walker.nextNode()) {
  const element = node.parentElement;
  if (!node.data.trim() || ["SCRIPT", "STYLE", "title"].includes(element.tagName)) continue;
  const style = getComputedStyle(element);
  const color = parse(element.closest("svg") ? style.fill : style.color);
  const [high, low] = [luminance(color), luminance(behind(element))].sort((a, b) => b - a);
  found.push([(high + 0.05) / (low + 0.05), node.data.trim().slice(0, 40), element.className]);
}
return found;
"""


@pytest.fixture(scope="module")
def browser():
    """One headless Chromium for all tests."""
    if not CHROMIUM or not DRIVER:
        pytest.skip(
            "needs Chromium and its driver: apt-get install chromium chromium-driver fonts-dejavu-core"
        )
    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    for argument in ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu"):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(DRIVER))
    driver.get("data:text/html,<span id=text>text</span>")
    if not driver.find_element(By.ID, "text").size["width"]:
        driver.quit()
        pytest.skip("needs a font that Chromium finds: apt-get install fonts-dejavu-core")
    yield driver
    driver.quit()


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Each page once."""
    folder = tmp_path_factory.mktemp("pages")
    made = {
        "everything": pages.everything(),
        "hostile": pages.hostile(),
        "many": pages.many(),
        "empty": pages.report(stopped="interrupted"),
    }
    for name, report in made.items():
        write_page(folder / f"{name}.html", report)
    return {name: (folder / f"{name}.html").as_uri() for name in made}


def show(browser, address, scheme="light", width=1200, opened=False):
    """Loads a page at this width in this colour scheme."""
    browser.execute_cdp_cmd(
        "Emulation.setEmulatedMedia", {"features": [{"name": "prefers-color-scheme", "value": scheme}]}
    )
    size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 600}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    browser.get("about:blank")
    browser.get(address)
    if opened:
        browser.execute_script("for (const e of document.querySelectorAll('details')) e.open = true")


def focused(browser):
    return browser.switch_to.active_element


def press(browser, *keys):
    for key in keys:
        focused(browser).send_keys(key)


@pytest.mark.parametrize("name", ["everything", "hostile", "many", "empty"])
def test_a_page_asks_nobody_and_logs_nothing(browser, files, name):
    browser.get_log("performance")
    browser.get_log("browser")
    show(browser, files[name], opened=name != "many")
    assert browser.get_log("browser") == []
    events = [json.loads(entry["message"])["message"] for entry in browser.get_log("performance")]
    asked = {e["params"]["request"]["url"] for e in events if e["method"] == "Network.requestWillBeSent"}
    assert files[name] in asked
    assert all(address.startswith((files[name], "data:", "about:")) for address in asked), asked


def test_names_are_text_wherever_they_stand(browser, files):
    show(browser, files["hostile"], opened=True)
    assert len(browser.find_elements(By.TAG_NAME, "script")) == 1  # the page's own
    assert browser.title == "Triton kernels"
    text = browser.find_element(By.TAG_NAME, "body").text
    assert '<script>alert("x")</script>\'"&{{ 7 * 7 }}⟨U+202E RIGHT-TO-LEFT OVERRIDE⟩⟨U+0000⟩' in text
    raw = browser.execute_script("return document.documentElement.outerHTML")
    assert "\u202e" not in raw and "\u05d0" not in raw
    # Nothing of a name became markup: every element is one that the template or the plot writes.
    handlers = browser.execute_script(
        "return [...document.querySelectorAll('*')].flatMap(e => [...e.attributes].map(a => a.name))"
        ".filter(n => n.startsWith('on'))"
    )
    assert handlers == []


def test_the_policy_stops_what_would_be_injected(browser, files):
    show(browser, files["everything"])
    browser.execute_script(
        "const s = document.createElement('script'); s.textContent = 'window.injected = 1';"
        "document.body.append(s); const i = new Image(); i.src = 'http://127.0.0.1:9/x.png'; document.body.append(i)"
    )
    assert browser.execute_script("return window.injected === undefined")
    logged = " ".join(entry["message"] for entry in browser.get_log("browser"))
    assert "Content Security Policy" in logged


@pytest.mark.parametrize("name", ["everything", "hostile", "many", "empty"])
def test_nothing_scrolls_sideways_on_a_phone(browser, files, name):
    show(browser, files[name], width=380, opened=name != "many")
    widths = browser.execute_script("return [document.documentElement.scrollWidth, innerWidth]")
    assert widths == [380, 380]
    # Long lines of code scroll inside their own box.
    if name == "everything":
        scrolls = "return [...document.querySelectorAll('.code')].some(e => e.scrollWidth > e.clientWidth)"
        assert browser.execute_script(scrolls)


def test_nothing_scrolls_sideways_at_any_width(browser, files):
    for name in ("everything", "hostile"):
        show(browser, files[name], opened=True)
        for width in (640, 1056, 1057, 1280, 1345, 1920):
            size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
            browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
            assert browser.execute_script("return document.documentElement.scrollWidth") <= width, (
                name,
                width,
            )


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_has_enough_contrast(browser, files, scheme):
    show(browser, files["everything"], scheme, opened=True)
    found = browser.execute_script(CONTRASTS)
    assert len(found) > 300
    faint = [each for each in found if each[0] < 4.5]
    assert not faint, faint[:10]
    page = browser.execute_script(
        "return getComputedStyle(document.documentElement).getPropertyValue('--page')"
    )
    assert page == {"light": "#fbfbfa", "dark": "#14171a"}[scheme]


def test_a_keyboard_is_enough(browser, files):
    show(browser, files["everything"])
    press(browser, Keys.TAB)
    assert focused(browser).text == "Skip to the modules"
    assert focused(browser).value_of_css_property("outline-style") == "solid"
    press(browser, Keys.ENTER)
    assert focused(browser).get_attribute("id") == "modules"
    press(browser, Keys.TAB)
    press(browser, "scale")
    rows = browser.find_elements(By.CSS_SELECTOR, ".modules tbody tr")
    assert [row.is_displayed() for row in rows] == [True] + [False] * 7
    press(browser, Keys.TAB)
    assert focused(browser).text == "Scale"
    press(browser, Keys.ENTER)
    target = browser.find_element(By.ID, "target-1")
    assert target.get_attribute("open") and focused(browser).tag_name == "summary"
    assert focused(browser).value_of_css_property("outline-style") == "solid"
    press(browser, Keys.TAB)
    assert focused(browser).get_attribute("aria-label") == "Source of Scale"
    browser.find_element(By.CSS_SELECTOR, "#target-1 > summary").send_keys(Keys.SPACE)
    assert not target.get_attribute("open")


def test_a_link_leads_to_the_wrong_line(browser, files):
    show(browser, files["everything"] + "#target-1-2-wrong")
    line = browser.find_element(By.ID, "target-1-2-wrong")
    assert line.is_displayed() and "tl.store(out_ptr" in line.text


def test_two_hundred_targets_are_filtered(browser, files):
    show(browser, files["many"])
    browser.find_element(By.ID, "search").send_keys("module19 patch")
    assert browser.find_element(By.TAG_NAME, "output").text == "11 of 200"


def test_motion_is_reduced_where_it_is_asked_for(browser, files):
    show(browser, files["everything"])
    features = [{"name": "prefers-reduced-motion", "value": "reduce"}]
    behaviour = "return getComputedStyle(document.documentElement).scrollBehavior"
    assert browser.execute_script(behaviour) == "smooth"
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
    assert browser.execute_script(behaviour) == "auto"
