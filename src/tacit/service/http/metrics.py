"""Numbers for Prometheus.  Those that depend on rewards are raw data: for scope `admin`, and marked as such."""

from __future__ import annotations

import math
from collections.abc import Iterator

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector
from starlette.requests import Request
from starlette.responses import Response

from tacit.service.http.answers import COMMON
from tacit.service.http.hot import BATCHES, DECISIONS, REWARDS
from tacit.service.http.state import Service

MEDIA_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_RAW = "RAW DATA, not covered by any privacy guarantee: "


class _Numbers(Collector):
    """All numbers of a service, as they are at this moment."""

    def __init__(self, service: Service, *, raw: bool) -> None:
        self._service, self._raw = service, raw

    def collect(self) -> Iterator[Metric]:
        """The public ones, and for an operator the others."""
        yield from self._of_policies()
        yield self._requests("tacit_decision_requests", "Requests for decisions, by status.", (DECISIONS, BATCHES))
        yield GaugeMetricFamily("tacit_live_streams", "Open streams of changes.", value=self._service.live)
        if self._raw:
            yield self._requests("tacit_reward_requests", f"{_RAW}requests that report rewards, by status.", (REWARDS,))
            yield self._unsettled()
            yield GaugeMetricFamily(
                "tacit_queue",
                f"{_RAW}requests that wait for the writer, rewards included.",
                value=self._service.writer.waiting + self._service.writer.waiting_rewards,
            )

    def _of_policies(self) -> Iterator[Metric]:
        decisions = CounterMetricFamily("tacit_decisions", "Decisions made.", labels=["policy"])
        releases = CounterMetricFamily("tacit_releases", "Releases under differential privacy.", labels=["policy"])
        spent = GaugeMetricFamily("tacit_spent_mu", "Gaussian-DP parameter spent on a person.", labels=["policy"])
        for name, served in sorted(self._service.deployment.policies.items()):
            seen = served.host.published
            decisions.add_metric([name], seen.decisions)
            releases.add_metric([name], seen.releases)
            spent.add_metric([name], seen.spent_mu if math.isfinite(seen.spent_mu) else math.inf)
        yield from (decisions, releases, spent)

    def _requests(self, name: str, about: str, routes: tuple[str, ...]) -> Metric:
        family = CounterMetricFamily(name, about, labels=["route", "status"])
        for (route, status), count in sorted(self._service.answered.items()):
            if route in routes:
                family.add_metric([route, str(status)], count)
        return family

    def _unsettled(self) -> Metric:
        family = GaugeMetricFamily(
            "tacit_waiting_decisions", f"{_RAW}decisions whose waiting time is not over.", labels=["policy"]
        )
        for name, served in sorted(self._service.deployment.policies.items()):
            family.add_metric([name], served.host.unsettled)
        return family


async def metrics(service: Service, request: Request) -> Response:
    """The text that Prometheus reads."""
    registry = CollectorRegistry()
    registry.register(_Numbers(service, raw=request.scope["tacit.key"].may("admin")))
    return Response(generate_latest(registry), headers=COMMON, media_type=MEDIA_TYPE)
