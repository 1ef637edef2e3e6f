"""A real browser for the tests: the machine's Chromium, Chrome or Edge, or one that is installed now."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from selenium import webdriver
from selenium.common.exceptions import WebDriverException
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.support.wait import WebDriverWait

from tests.system_packages import CHROMIUM, find_or_install

WAIT_S = 60.0
AXE = (Path(__file__).parent / "vendor" / "axe.min.js").read_text(encoding="utf-8")


@contextmanager
def browser(profile: Path) -> Iterator[webdriver.Chrome]:
    path = find_or_install(CHROMIUM)
    options = webdriver.ChromeOptions()
    options.binary_location = path
    arguments = (
        "--headless=new",
        "--no-sandbox",  # root may not have one
        "--disable-gpu",
        "--disable-dev-shm-usage",
        "--disable-background-networking",
        "--window-size=1280,900",
        f"--user-data-dir={profile}",
    )
    for argument in arguments:
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver_path = shutil.which("chromedriver")  # where there is none, Selenium finds one that fits
    service = webdriver.ChromeService(driver_path) if driver_path is not None else webdriver.ChromeService()
    driver = webdriver.Chrome(options=options, service=service)
    driver.set_script_timeout(WAIT_S)
    driver.set_page_load_timeout(WAIT_S)
    try:
        yield driver
    finally:
        driver.quit()


class Tab:
    """What a person does and sees."""

    def __init__(self, driver: webdriver.Chrome) -> None:
        self.driver = driver
        self.base = ""

    def open(self, path: str) -> None:
        self.driver.get(self.base + path)

    def text(self, selector: str = "main") -> str:
        return str(self.driver.execute_script("return document.querySelector(arguments[0])?.innerText ?? ''", selector))

    def attribute(self, selector: str, name: str) -> str | None:
        """Asked in one step: a live page may replace an element between two."""
        script = "return document.querySelector(arguments[0])?.getAttribute(arguments[1]) ?? null"
        found: str | None = self.driver.execute_script(script, selector, name)
        return found

    def until(self, is_so: Any, message: str = "") -> Any:
        """A look may fall into the moment in which one page goes and the next one comes: then it looks again."""
        waiting = WebDriverWait(self.driver, WAIT_S, poll_frequency=0.1, ignored_exceptions=[WebDriverException])
        return waiting.until(lambda _: is_so(), message)

    def until_text(self, words: str, selector: str = "body") -> None:
        self.until(lambda: words in self.text(selector), f"{words!r} never appeared at {self.driver.current_url}")

    def find(self, selector: str) -> Any:
        return self.until(lambda: self.driver.find_elements("css selector", selector), selector)[0]

    def click(self, words: str) -> None:
        """Click the button or the link with these words, and wait for the next page.

        It is found and clicked in one step, because a live page may replace it between two.
        """
        self.until(
            lambda: self.driver.execute_script(
                "if (window.isOld) return true;"
                "const found = [...document.querySelectorAll('button, a')]"
                ".find(e => e.innerText.trim().replace('…', '') === arguments[0]);"
                "if (!found) return false;"
                "window.isOld = true; found.click(); return true",
                words,
            ),
            words,
        )
        self.until(lambda: self.driver.execute_script("return !window.isOld && document.readyState === 'complete'"))

    def press(self, keys: str) -> None:
        """Press keys where the focus is, on a page whose scripts run."""
        self.until(lambda: self.driver.execute_script("return document.readyState === 'complete'"))
        ActionChains(self.driver).send_keys(keys).perform()

    def leave(self) -> None:
        """Leave the page: nothing on it happens any more, and nothing complains any more."""
        self.driver.get("about:blank")

    def fill(self, selector: str, text: str) -> None:
        element = self.find(selector)
        element.clear()
        element.send_keys(text)

    def problems(self) -> list[str]:
        """What the console has complained about since the last time: errors, and breaches of the policy."""
        return [
            line["message"]
            for line in self.driver.get_log("browser")
            if line["level"] in ("SEVERE", "WARNING") or "Content Security Policy" in line["message"]
        ]

    def violations(self) -> list[str]:
        """What axe finds on this page that is serious or worse."""
        self.driver.execute_cdp_cmd("Page.setBypassCSP", {"enabled": False})
        self.driver.execute_script(AXE)  # the driver is not bound by the page's policy
        found = self.driver.execute_async_script(
            "const done = arguments[arguments.length - 1];"
            "axe.run(document, {runOnly: ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa']})"
            ".then(r => done(r.violations.filter(v => ['serious', 'critical'].includes(v.impact))"
            ".map(v => v.id + ': ' + v.nodes.slice(0, 3).map(n => n.html + ' ' + n.failureSummary).join(' | '))))"
        )
        return [str(one) for one in found]

    def set_scheme(self, scheme: str) -> None:
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})

    def set_width(self, width: int) -> None:
        sizes = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 600}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", sizes)
