"""Fixtures of these tests."""

from tests.service.postgres_server import database, postgres

__all__ = ["database", "postgres"]
