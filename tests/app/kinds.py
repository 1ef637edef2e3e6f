"""Classes of every sort that arguments can be made of."""

import enum
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal
from typing import NamedTuple, TypedDict
from uuid import UUID

import msgspec
import pydantic
import pydantic.dataclasses


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Size(enum.IntEnum):
    SMALL = 1
    LARGE = 2


@dataclass
class Address:
    street: str
    zip: int


@dataclass
class User:
    name: str
    address: list[Address] = field(default_factory=list)


@dataclass
class Company:
    vat: str


@dataclass
class Tagged:
    """Could be made of any mapping."""

    tag: str = ""


class Order(msgspec.Struct):
    id: UUID
    total: Decimal
    at: datetime | None = None


class Line(pydantic.BaseModel):
    sku: str
    count: int = pydantic.Field(gt=0)


class Basket(pydantic.BaseModel):
    owner: UUID
    lines: list[Line]
    note: str = pydantic.Field(default="", alias="remark")


@pydantic.dataclasses.dataclass
class Interval:
    low: int
    high: pydantic.PositiveInt


class Login(pydantic.BaseModel):
    user: str
    password: pydantic.SecretStr


class Point(NamedTuple):
    x: int
    y: int


class Movie(TypedDict):
    title: str
    year: int


class Opaque:
    """Nothing that could be written."""
