"""Numbers for Prometheus.  Those that depend on rewards are raw data: for scope `admin`, and marked as such."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import accumulate

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector
from starlette.requests import Request
from starlette.responses import Response

from tacit.service.http.hot import BATCHES, DECISIONS, REWARDS
from tacit.service.http.keys import Key
from tacit.service.http.problems import COMMON
from tacit.service.http.state import LATENCIES, Service

MEDIA_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_RAW = "RAW DATA, not covered by any privacy guarantee: "
_ENDLESS = "/v1/live"


class _Numbers(Collector):
    """All numbers of a service that a key may see, at the time of the request."""

    def __init__(self, service: Service, key: Key) -> None:
        self._service, self._raw, self._bound = service, key.may("admin"), key.policies is not None
        self._policies = service.policies_of(key).items()

    def collect(self) -> Iterator[Metric]:
        """Yield public numbers, and raw ones for an operator; a key that is bound sees those of its policies alone."""
        decisions = CounterMetricFamily("tacit_decisions", "Decisions made.", labels=["policy"])
        releases = CounterMetricFamily("tacit_releases", "Releases under differential privacy.", labels=["policy"])
        spent = GaugeMetricFamily("tacit_spent_mu", "Gaussian-DP parameter spent on a person.", labels=["policy"])
        about = f"{_RAW}decisions whose waiting time is not over."
        unsettled = GaugeMetricFamily("tacit_waiting_decisions", about, labels=["policy"])
        for name, served in self._policies:
            seen = served.host.published
            decisions.add_metric([name], seen.decisions)
            releases.add_metric([name], seen.releases)
            spent.add_metric([name], seen.spent_mu)
            unsettled.add_metric([name], served.host.unsettled)
        yield from (decisions, releases, spent)
        if not self._bound:
            yield self._requests("tacit_decision_requests", "Requests for decisions, by status.", (DECISIONS, BATCHES))
            yield GaugeMetricFamily("tacit_live_streams", "Open streams of changes.", value=self._service.live)
        if self._raw:
            yield unsettled
        if self._raw and not self._bound:
            yield self._requests("tacit_reward_requests", f"{_RAW}requests that report rewards, by status.", (REWARDS,))
            yield self._latencies()
            waiting = self._service.writer.waiting + self._service.rewarder.waiting_rewards
            about = f"{_RAW}requests that wait to be carried out, rewards included."
            yield GaugeMetricFamily("tacit_queue", about, value=waiting)

    def _requests(self, name: str, about: str, routes: tuple[str, ...]) -> Metric:
        family = CounterMetricFamily(name, about, labels=["route", "status"])
        for (route, status), count in sorted(self._service.answered.items()):
            if route in routes:
                family.add_metric([route, str(status)], count)
        return family

    def _latencies(self) -> Metric:
        """Return how long answers took: raw, since a machine that is busy with rewards answers all callers later."""
        about = f"{_RAW}how long answers took, by route, refusals left out."
        family = HistogramMetricFamily("tacit_request_seconds", about, labels=["route"])
        bounds = [*map(str, LATENCIES), "+Inf"]
        for route in sorted(self._service.latencies.keys() - {_ENDLESS}):
            took = self._service.latencies[route]
            family.add_metric([route], list(zip(bounds, accumulate(took.counts), strict=True)), took.seconds)
        return family


async def metrics(service: Service, request: Request) -> Response:
    """Show numbers for Prometheus; with scope admin also raw ones."""
    await service.see()
    registry = CollectorRegistry()
    registry.register(_Numbers(service, request.scope["tacit.key"]))
    return Response(generate_latest(registry), headers=COMMON, media_type=MEDIA_TYPE)
