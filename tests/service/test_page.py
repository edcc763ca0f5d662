"""The page in a real browser: a first visit, live figures, bad days, telephones, the dark, and those who do not see."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Literal

import pytest
from hatchling.builders.wheel import WheelBuilder
from playwright.sync_api import Browser, Page, expect, sync_playwright

from tacit.service.backup import back_up_store, restore_store
from tacit.service.deployment import Deployment
from tests.service.browser import chromium
from tests.service.page_world import ARTICLES, PATIENCE, QUESTION, RunningService, Visit, visiting
from tests.service.parts import quick_store

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
PAGE = files("tacit.service") / "page"
CONTRAST = (Path(__file__).parent / "contrast.js").read_text()
AGES = re.compile(r"just now|\d+ (s|min) ago")
SCHEMES: tuple[Literal["light", "dark"], ...] = ("light", "dark")


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    path = chromium()
    with sync_playwright() as playwright:
        expect.set_options(timeout=PATIENCE)
        opened = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield opened
        opened.close()


@pytest.fixture
def empty(tmp_path: Path) -> Iterator[RunningService]:
    service = RunningService(tmp_path / "data")
    yield service
    service.stop()


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningService]:
    """A service with a policy that has a schema and releases, one for people, and one without privacy."""
    running = RunningService(tmp_path_factory.mktemp("page") / "data")
    running.make("articles", features=ARTICLES)
    for _ in range(6):
        running.decide("articles", QUESTION, 50)
    running.make("people", dim=2, rounds_per_user=4, user_level=True, hold=True, default_reward=0.0)
    running.call("PUT", "policies/raw", {"policy": "greedy-mle", "dim": 2, "mode": "apprentice"})
    yield running
    running.stop()


def shown(visit: Visit, name: str) -> Page:
    """The page with this policy on it."""
    page = visit.open()
    page.get_by_role("navigation", name="Policies").get_by_role("link", name=name).click()
    expect(page.get_by_role("heading", name=name, level=2)).to_be_visible()
    return page


# Files


def _texts(folder: Traversable) -> Iterator[tuple[str, str]]:
    for path in folder.iterdir():
        if path.is_dir():
            yield from ((f"{path.name}/{name}", text) for name, text in _texts(path))
        else:
            yield path.name, path.read_text()


def test_files_are_found_and_stay_together() -> None:
    texts = dict(_texts(PAGE))
    assert {"index.html", "app.js", "style.css", "vendor/uplot/LICENSE.txt"} <= set(texts)
    wanted = set(re.findall(r'(?:src|href)="static/([^"]+)"', texts["index.html"]))
    imported = {found for text in texts.values() for found in re.findall(r'from "\./([^"]+)"', text)}
    assert wanted | imported <= set(texts)
    own = {name: text for name, text in texts.items() if not name.startswith("vendor/")}
    elsewhere = [(name, url) for name, text in own.items() for url in re.findall(r"https?://[^\s\"'`]+", text)]
    assert [url for _, url in elsewhere if url != "http://www.w3.org/2000/svg"] == []
    assert not re.search(r"<script>|<style|style=|onclick=", texts["index.html"])
    assert not [name for name, text in own.items() if "innerHTML" in text or "insertAdjacentHTML" in text]


def test_the_wheel_has_the_page() -> None:
    included = {file.distribution_path for file in WheelBuilder(str(ROOT)).recurse_included_files()}
    assert {f"tacit/service/page/{name}" for name, _ in _texts(PAGE)} <= included


# Visits


def test_first_visit(browser: Browser, empty: RunningService) -> None:
    """From a form for the key to a policy, a decision and its reward, by keyboard where that matters."""
    with visiting(browser, empty) as visit:
        page = visit.open("")
        page.get_by_label("Key", exact=True).fill(empty.key)
        page.keyboard.press("Enter")
        expect(page.get_by_role("heading", name="Make your first policy")).to_be_visible()
        command = page.get_by_role("region", name="The same on the command line")
        expect(command).to_contain_text("/v1/policies/articles")
        expect(command).to_contain_text("$TACIT_KEY")
        assert visit.nameless() == []
        page.get_by_label("What arms look like").select_option("Plain numbers")
        page.get_by_label("Privacy budget").fill("-1")
        page.get_by_role("button", name="Make the policy").click()
        expect(page.get_by_role("alert")).to_contain_text("must be a number above 0")
        page.get_by_label("Privacy budget").fill("2")
        expect(command).to_contain_text('"epsilon": 2')
        page.get_by_label("Name").press("Enter")
        expect(page.get_by_role("heading", name="articles", level=2)).to_be_focused()
        expect(page.get_by_role("meter", name="Privacy budget")).to_have_attribute("aria-valuemax", "2")
        page.get_by_role("button", name="Ask for a decision").click()
        expect(page.get_by_text(re.compile(r"Arm \d is to be shown"))).to_be_visible()
        page.get_by_role("button", name="Report the reward").click()
        expect(page.get_by_text("Taken. It is on the disk, and will count")).to_be_visible()
        page.get_by_role("button", name="Report the reward").click()
        expect(page.get_by_text("The same was reported before")).to_be_visible()
        expect(page.locator(".tiles")).to_contain_text("Decisions1")
        assert page.evaluate("[location.hash.includes('key'), localStorage.length]") == [False, 0]


def test_commands_do_what_the_page_does(browser: Browser, empty: RunningService) -> None:
    with visiting(browser, empty) as visit:
        page = visit.open()
        expect(page).not_to_have_url(re.compile("key="))
        command = page.get_by_role("region", name="The same on the command line").inner_text()
        body = json.loads(command[command.index("-d '") + 4 : command.rindex("'")])
        empty.call("PUT", "policies/from-the-shell", body)
        expect(page.get_by_role("heading", name="from-the-shell", level=2)).to_be_visible()
        page.get_by_text("Try a decision").click()
        question = json.loads(page.get_by_label("What is asked, as JSON").input_value())
        assert empty.call("POST", "policies/from-the-shell/decisions", question)["arm"] in (0, 1, 2)


def test_live_figures(browser: Browser, service: RunningService) -> None:
    with visiting(browser, service) as visit:
        page = shown(visit, "articles")
        releases = page.get_by_role("region", name="Releases")
        decisions, told = page.locator(".tiles dd").first, releases.locator("p.calm").first
        before, newest = int(decisions.inner_text()), told.inner_text()
        page.get_by_text("Try a decision").click()
        service.decide("articles", QUESTION, 100)
        expect(decisions).to_have_text(str(before + 100))
        expect(told).not_to_have_text(newest)
        expect(releases.get_by_role("table").locator("tbody tr")).to_have_count(8)  # the newest
        expect(page.get_by_role("img", name=re.compile(f"{before + 100} decisions so far"))).to_be_visible()
        expect(page.get_by_role("button", name="Ask for a decision")).to_be_visible()  # nothing was closed meanwhile


def test_changes_of_mode_are_shown(browser: Browser, service: RunningService) -> None:
    service.make("switched", dim=2)
    again = {"policy": "stream-glm", "epsilon": 1.0, "delta": 1e-6, "hold": False, "dim": 2}
    with visiting(browser, service) as visit:
        page = shown(visit, "switched")
        changes = page.locator(".policy > .note")
        expect(changes).to_have_text("")
        service.decide("switched", {"contexts": [[1.0, 0.0]]}, 1)
        service.call("PUT", "policies/switched", again | {"mode": "off"})
        expect(changes).to_have_text(re.compile(r"^Off since [\d:]{8}, after 1 decision$"))
        for mode in ("apprentice", "online", "off"):
            service.call("PUT", "policies/switched", again | {"mode": mode})
        told = (
            r"^Off since .*; before that: Online since .*; before that: Apprentice .*; before that: 1 earlier change$"
        )
        page.reload()
        expect(changes).to_have_text(re.compile(told))


def test_a_page_that_nobody_looks_at_rests(browser: Browser, service: RunningService) -> None:
    turned = """(state) => {
        Object.defineProperty(document, "visibilityState", { value: state, configurable: true });
        document.dispatchEvent(new Event("visibilitychange"));
    }"""
    with visiting(browser, service) as visit:
        page = shown(visit, "articles")
        before = int(page.locator(".tiles dd").first.inner_text())
        page.evaluate(turned, "hidden")
        expect(page.get_by_role("status").first).to_have_text("Paused")
        service.decide("articles", QUESTION, 1)
        page.evaluate(turned, "visible")
        expect(page.get_by_role("status").first).to_have_text("Live")
        expect(page.locator(".tiles dd").first).to_have_text(str(before + 1))


def test_what_a_policy_shows(browser: Browser, service: RunningService) -> None:
    with visiting(browser, service) as visit:
        page = shown(visit, "articles")
        expect(page.locator(".features tbody")).to_contain_text("<b>member</b>")
        expect(page.get_by_role("region", name="Privacy budget")).to_contain_text("of 1 spent, per visit")
        expect(page.get_by_role("region", name="Privacy budget")).to_contain_text("10⁻⁶ (1 in 1,000,000)")
        expect(page.get_by_role("region", name="Ledger").get_by_role("table")).to_contain_text("H and score")
        expect(
            page.get_by_role("img", name=re.compile("Estimated best reward. The newest release says"))
        ).to_be_visible()
        expect(page.get_by_role("region", name="All policies together")).to_contain_text("raw learns without privacy")
        page = shown(visit, "people")
        expect(page.get_by_role("region", name="Privacy budget")).to_contain_text("per person, up to 4 visits")
        expect(page.get_by_role("region", name="Terms")).to_contain_text("counts as 0")
        page = shown(visit, "raw")
        expect(page.get_by_role("region", name="Privacy budget")).to_contain_text("No privacy")
        expect(page.get_by_role("region", name="What matters")).to_contain_text("raw data, which is not shown")
        expect(page.locator(".badge")).to_have_text("Apprentice")


def test_a_person_in_several_lives_is_warned_of(browser: Browser, tmp_path: Path) -> None:
    """After a restore that let users count again, and in the figure of all policies together."""
    body = {"policy": "stream-glm", "dim": 2, "epsilon": 1.0, "delta": 1e-6, "rounds_per_user": 4, "user_level": True}
    store = quick_store(tmp_path / "first")
    Deployment(store).put("people", body)
    back_up_store(store, tmp_path / "backup")
    store.close()
    store = quick_store(tmp_path / "data")
    restore_store(tmp_path / "backup", store, accept_user_cost=True)
    store.close()
    running = RunningService(tmp_path / "data")
    try:
        with visiting(browser, running) as visit:
            page = shown(visit, "people")
            budget = page.get_by_role("region", name="Privacy budget")
            expect(budget).to_contain_text("per person, up to 4 visits in each of 2 lives")
            expect(budget.locator(".warnings")).to_contain_text("a person may have rows in 2 lives")
            expect(budget.locator(".warnings")).to_contain_text("epsilon = 1.45")
            expect(page.get_by_role("region", name="All policies together")).to_contain_text("ε 1.45")
    finally:
        running.stop()


def test_an_epsilon_that_promises_little_is_warned_of(browser: Browser, service: RunningService) -> None:
    service.make("loose", dim=2, epsilon=20.0)
    with visiting(browser, service) as visit:
        budget = shown(visit, "loose").get_by_role("region", name="Privacy budget")
        expect(budget.locator(".warnings")).to_contain_text("epsilon = 20 is above 10, where the guarantee says little")


def test_rewards_leave_no_trace(browser: Browser, service: RunningService) -> None:
    """What was reported since the last release changes nothing that can be seen."""
    service.make("silent", dim=2)
    asked = [service.call("POST", "policies/silent/decisions", {"contexts": [[1.0, 0.0]]}) for _ in range(5)]
    with visiting(browser, service) as visit:
        page = shown(visit, "silent")
        expect(page.locator(".tiles dd").first).to_have_text("5")
        expect(page.get_by_role("region", name="Releases")).to_contain_text("decisions", ignore_case=True)
        before = AGES.sub("", page.inner_text("body"))
        for decision in asked[:3]:
            service.call("PUT", f"policies/silent/decisions/{decision['event_id']}/reward", {"reward": 1.0})
        page.wait_for_timeout(2_200)  # the stream looks for changes once a second
        assert AGES.sub("", page.inner_text("body")) == before
        page.reload()
        expect(page.locator(".tiles dd").first).to_have_text("5")
        expect(page.locator(".readout").first).to_have_text("5")
        assert AGES.sub("", page.inner_text("body")) == before


@pytest.mark.parametrize("scheme", SCHEMES)
def test_telephones_and_the_dark(browser: Browser, service: RunningService, scheme: Literal["light", "dark"]) -> None:
    with visiting(browser, service, width=360, scheme=scheme) as visit:
        visit.open("")
        assert not visit.scrolls_sideways()
        assert visit.page.evaluate(CONTRAST) == []
        for name in ("articles", "people", "raw"):
            page = shown(visit, name)
            page.evaluate("document.querySelectorAll('details').forEach((each) => { each.open = true; })")
            assert not visit.scrolls_sideways()
            assert page.evaluate(CONTRAST) == []
        page.get_by_role("link", name="Make another policy").click()
        expect(page.get_by_role("heading", name="Make a policy")).to_be_visible()
        assert not visit.scrolls_sideways()
        ground = page.evaluate("getComputedStyle(document.body).backgroundColor.match(/\\d+/g).map(Number)")
        assert (max(ground) < 64) == (scheme == "dark")


def test_names_for_those_who_do_not_see(browser: Browser, service: RunningService) -> None:
    with visiting(browser, service) as visit:
        page = shown(visit, "articles")
        page.evaluate("document.querySelectorAll('details').forEach((each) => { each.open = true; })")
        expect(page.locator(".features tbody tr").first).to_be_visible()
        assert visit.nameless() == []
        for landmark in ("banner", "navigation", "main", "contentinfo"):
            expect(page.get_by_role(landmark)).to_have_count(1)
        page.reload()
        expect(page.get_by_role("navigation")).to_be_visible()
        page.keyboard.press("Tab")
        expect(page.get_by_role("link", name="Skip to the figures")).to_be_focused()
        page.keyboard.press("Enter")
        expect(page.get_by_role("main")).to_be_focused()


# Bad days


def test_wrong_key(browser: Browser, service: RunningService) -> None:
    with visiting(browser, service, troubled=True) as visit:
        page = visit.open("key=not-the-key")
        expect(page.get_by_role("alert").first).to_have_text("The service does not know this key.")
        page.get_by_label("Key", exact=True).fill(service.key)
        page.get_by_role("button", name="Show the figures").click()
        expect(page.get_by_role("status").first).to_have_text("Live")
        page.get_by_role("button", name="Forget the key").click()
        expect(page.get_by_role("heading", name="This page needs a key")).to_be_visible()
        assert page.evaluate("sessionStorage.length") == 0


def test_a_key_that_may_only_read(browser: Browser, service: RunningService) -> None:
    viewer = service.call("POST", "keys", {"name": "viewer", "scopes": ["read"]})["key"]
    with visiting(browser, service, troubled=True) as visit:
        page = visit.open(f"key={viewer}")
        page.get_by_text("Try a decision").click()
        page.get_by_role("button", name="Ask for a decision").click()
        expect(page.locator(".answer.bad")).to_contain_text("decide")
        expect(page.get_by_role("status").first).to_have_text("Live")


def test_a_key_that_is_bound_sees_its_policies_without_the_total(browser: Browser, service: RunningService) -> None:
    bound = {"name": "bound", "scopes": ["read"], "policies": ["peop*"]}
    viewer = service.call("POST", "keys", bound)["key"]
    with visiting(browser, service, troubled=True) as visit:
        page = visit.open(f"key={viewer}")
        expect(page.get_by_role("heading", name="people", level=2)).to_be_visible()
        expect(page.get_by_role("region", name="Privacy budget")).to_contain_text("per person, up to 4 visits")
        expect(page.get_by_role("navigation", name="Policies").get_by_role("listitem")).to_have_count(1)
        expect(page.get_by_role("region", name="All policies together")).to_be_hidden()
        expect(page.get_by_role("status").first).to_have_text("Live")


def test_service_gone_and_back(browser: Browser, service: RunningService) -> None:
    with visiting(browser, service, troubled=True) as visit:
        page = shown(visit, "articles")
        decisions = page.locator(".tiles dd").first
        before = int(decisions.inner_text())
        service.stop()
        expect(page.get_by_role("alert")).to_contain_text("The service does not answer.")
        expect(page.locator("#banner")).to_contain_text(re.compile(r"figures below are those of .*(ago|now)"))
        expect(decisions).to_have_text(str(before))
        service.start()
        service.decide("articles", QUESTION, 3)
        expect(decisions).to_have_text(str(before + 3))
        expect(page.locator("#banner")).to_be_hidden()


# Modules


def test_streams_arrive_in_pieces_of_any_size(browser: Browser, service: RunningService) -> None:
    with visiting(browser, service) as visit:
        heard = visit.open().evaluate(
            """async () => {
                const { Events } = await import("/static/api.js");
                const heard = [];
                const events = new Events((data) => heard.push(data));
                const text = ': still here\\n\\ndata: {"a": 1}\\n\\nevent: x\\ndata: {"a":\\ndata: 2}\\n\\n' +
                    'data: {"a": 3}\\r\\n\\r\\n';
                for (const letter of text) events.take(letter);
                events.take(text);
                return heard.map((each) => each.a);
            }"""
        )
        assert heard == [1, 2, 3, 1, 2, 3]


def test_whether_something_was_released_is_said_by_the_number_of_releases(
    browser: Browser, service: RunningService
) -> None:
    """Noise may make every effect 0; and before the first release nothing is known, whatever the effects are."""
    with visiting(browser, service) as visit:
        heard = visit.open().evaluate(
            """async () => {
                const { featuresCard } = await import("/static/features.js");
                const feature = (effect) => ({ name: "age", effect, sd: 1.0, largest: 1.0 });
                const cases = [[0, [0.0]], [0, [0.5]], [1, [0.0]], [166, [0.0, 0.0]], [1, [0.5]]];
                return cases.map(([releases, effects]) => {
                    const card = featuresCard();
                    card.set({ features: effects.map(feature) }, releases, null);
                    const table = card.element.querySelector("table");
                    return [table.querySelectorAll("tbody tr").length, table.hidden,
                        card.element.textContent.includes("Nothing was released yet")];
                });
            }"""
        )
        assert heard == [[0, True, True]] * 2 + [[1, False, False], [2, False, False], [1, False, False]]


def test_numbers_as_people_read_them(browser: Browser, service: RunningService) -> None:
    with visiting(browser, service) as visit:
        texts = visit.open().evaluate(
            """async () => {
                const f = await import("/static/format.js");
                return [f.count(1234567), f.figure(0.123456), f.figure(-2.5e-7), f.figure(1234.5), f.figure(null),
                    f.chance(1e-6), f.chance(2.5e-5), f.epsilon(0.9999), f.epsilon(1.5), f.epsilon(10), f.epsilon(null),
                    f.duration(600), f.duration(5400), f.duration(1), f.duration(90000), f.age(1), f.age(59),
                    f.age(7200), f.plural(1, "policy", "policies"), f.plural(0, "release"), f.places(-0.444),
                    f.places(0.5, true)];
            }"""
        )
        assert texts == [
            *("1,234,567", "0.123", "−2.5 × 10⁻⁷", "1,235", "–"),  # noqa: RUF001
            *("10⁻⁶ (1 in 1,000,000)", "2.5 × 10⁻⁵ (1 in 40,000)", "1", "1.5", "10", "unlimited"),  # noqa: RUF001
            *("10 minutes", "1 hour 30 minutes", "1 second", "1 day 1 hour", "just now", "59 s ago", "2 h ago"),
            *("1 policy", "0 releases", "−0.44", "+0.50"),  # noqa: RUF001
        ]
