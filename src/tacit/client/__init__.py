"""Clients of a decision service: `Client` for ordinary code, `AsyncClient` for asyncio, with the same methods.

    with Client("http://127.0.0.1:8470", key) as client:
        choice = client.decide("news", user={"device": "ios"}, arms=articles, default_arm=0)
        show(articles[choice.arm])
        client.reward("news", choice, 1.0)

Every decision has an event id, made up here where the caller has none, so that a call can be made again: the service
answers the same, and nothing counts twice.  When the service cannot answer in time, or the policy is switched off or
deleted, ``default_arm`` is shown in place of an error.  Where the decision may have been made all the same, the
service is told, as soon as it can be reached, that its arm was never shown; rewards of such a choice are not sent.

Each method is described once, in `Verbs`, as the calls that it makes and what it returns; the two clients differ in how
they send a call and wait.
"""

from tacit.client.clients import AsyncClient, Client
from tacit.client.verbs import Choice

__all__ = ["AsyncClient", "Choice", "Client"]
