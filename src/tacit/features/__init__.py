"""Features: from a record to a row of norm at most 1, without a look at the data.

A schema spares callers from building (K, d) arrays by hand, and scales by what can occur and not by the data: a scaler
that is fitted, or a list of the categories that occurred, tells of the people whose data it saw.
"""

from tacit.features.encoding import Catalogue
from tacit.features.fields import Category, Flag, Hashed, Number
from tacit.features.schema import Schema
from tacit.features.support import Support

__all__ = ["Catalogue", "Category", "Flag", "Hashed", "Number", "Schema", "Support"]
