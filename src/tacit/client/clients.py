"""The two clients: how a call is sent, and how its reply is waited for."""

from __future__ import annotations

import asyncio
import ssl
import time
from types import TracebackType
from typing import Final
from urllib.parse import urlsplit

from tacit.client.calls import Call, Conversation, Reply, Result
from tacit.client.verbs import Verbs
from tacit.extras import named_extras

with named_extras():
    import aiohttp
    import urllib3

_MOST_IDLE: Final = 100
"""Connections that are kept open."""


class Client(Verbs):
    """Calls a service and waits for its answers; may be used from several threads.

    Parameters
    ----------
    url : str
        Where the service listens.
    key : str
        A key of the service.
    timeout : float
        Seconds for each attempt.
    retries : int
        How often a call is made again that could not be answered.
    ssl_context : ssl.SSLContext, optional
        What is trusted under ``https``; the system's certificates by default.

    Examples
    --------
    >>> from tacit.client import Client
    >>> with Client("http://127.0.0.1:1", "key", retries=0) as client:  # no service listens here
    ...     choice = client.decide("news", [[1.0, 0.0], [0.0, 1.0]], default_arm=0)
    >>> choice.arm, choice.answered
    (0, False)
    """

    def __init__(
        self,
        url: str,
        key: str,
        *,
        timeout: float = 2.0,
        retries: int = 3,
        ssl_context: ssl.SSLContext | None = None,
    ) -> None:
        super().__init__(url, key, timeout, retries)
        self._pool = urllib3.PoolManager(maxsize=_MOST_IDLE, ssl_context=ssl_context).connection_from_url(url)
        self._prefix = urlsplit(self._url).path

    def _run(self, steps: Conversation[Result]) -> Result:
        try:
            step = next(steps)
            while True:
                if isinstance(step, Call):
                    step = steps.send(self._send(step))
                else:
                    time.sleep(step)
                    step = next(steps)
        except StopIteration as end:
            result: Result = end.value
            return result

    def _send(self, call: Call) -> Reply:
        try:
            answer = self._pool.request(
                call.method,
                self._prefix + call.path,
                body=call.body,
                headers=self._headers,
                timeout=max(self._timeout, call.patience),
                retries=False,
                redirect=False,
            )
        except (urllib3.exceptions.NewConnectionError, urllib3.exceptions.ConnectTimeoutError) as error:
            return Reply(0, error=repr(error), sent=False)
        except urllib3.exceptions.HTTPError as error:
            return Reply(0, error=repr(error))
        return Reply(answer.status, answer.data)

    def close(self) -> None:
        """Close the connections."""
        self._pool.close()

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class AsyncClient(Verbs):
    """Calls a service from asyncio: the methods of `Client` as coroutines, in one event loop.

    Parameters
    ----------
    url, key : str
        Where the service listens, and a key of it.
    timeout : float
        Seconds for each attempt.
    retries : int
        How often a call is made again that could not be answered.
    ssl_context : ssl.SSLContext, optional
        What is trusted under ``https``; the system's certificates by default.

    Examples
    --------
    >>> import asyncio
    >>> from tacit.client import AsyncClient
    >>> async def ask():
    ...     async with AsyncClient("http://127.0.0.1:1", "key", retries=0) as client:  # no service listens here
    ...         return await client.decide("news", [[1.0, 0.0], [0.0, 1.0]], default_arm=0)
    >>> asyncio.run(ask()).answered
    False
    """

    def __init__(
        self,
        url: str,
        key: str,
        *,
        timeout: float = 2.0,
        retries: int = 3,
        ssl_context: ssl.SSLContext | None = None,
    ) -> None:
        super().__init__(url, key, timeout, retries)
        self._ssl: ssl.SSLContext | bool = ssl_context or True
        self._session: aiohttp.ClientSession | None = None

    async def _run(self, steps: Conversation[Result]) -> Result:
        try:
            step = next(steps)
            while True:
                step = steps.send(await (self._send(step) if isinstance(step, Call) else asyncio.sleep(step)))
        except StopIteration as end:
            result: Result = end.value
            return result

    async def _send(self, call: Call) -> Reply:
        if self._session is None:  # made here: it belongs to the running loop
            connector = aiohttp.TCPConnector(ssl=self._ssl, limit=_MOST_IDLE)
            jar = aiohttp.DummyCookieJar()
            self._session = aiohttp.ClientSession(connector=connector, headers=self._headers, cookie_jar=jar)
        try:
            async with self._session.request(
                call.method,
                self._url + call.path,
                data=call.body,
                timeout=aiohttp.ClientTimeout(total=max(self._timeout, call.patience)),
                allow_redirects=False,
            ) as answer:
                return Reply(answer.status, await answer.read())
        except aiohttp.ClientConnectorError as error:
            return Reply(0, error=repr(error), sent=False)
        except (aiohttp.ClientError, TimeoutError) as error:
            return Reply(0, error=repr(error))

    async def close(self) -> None:
        """Close the connections."""
        if self._session is not None:
            await self._session.close()

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()
