"""Version of the records, written into each."""

from typing import Literal

SCHEMA_VERSION: Literal[1] = 1
