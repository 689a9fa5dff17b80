"""Tokens by which a gateway speaks of an item later: they name it, and cannot be guessed."""

import base64
import hashlib
import hmac
from struct import Struct
from uuid import UUID

from jobwell.core.errors import InvalidArguments

_PLACE = Struct("!16shq")
_SIGNED = 12


def _sign(secret: UUID, place: bytes) -> bytes:
    return hmac.new(secret.bytes, place, hashlib.sha256).digest()[:_SIGNED]


def token_of(secret: UUID, run: UUID, stage: int, no: int) -> str:
    """The token of an item in a stage."""
    place = _PLACE.pack(run.bytes, stage, no)
    return base64.urlsafe_b64encode(place + _sign(secret, place)).decode().rstrip("=")


def place_of(token: str) -> tuple[UUID, int, int]:
    """Which item a token names, before its signature is checked.

    Raises:
        InvalidArguments: it is no token.
    """
    try:
        raw = base64.urlsafe_b64decode(token + "=" * (-len(token) % 4))
        run, stage, no = _PLACE.unpack(raw[:-_SIGNED])
    except (ValueError, TypeError, ArithmeticError) as error:
        raise InvalidArguments("this is no token of an item", "token") from error
    except Exception as error:  # struct's own error is no ValueError
        raise InvalidArguments("this is no token of an item", "token") from error
    return UUID(bytes=run), stage, no


def is_genuine(token: str, secret: UUID) -> bool:
    """Whether it was made with this secret."""
    run, stage, no = place_of(token)
    return hmac.compare_digest(token, token_of(secret, run, stage, no))
