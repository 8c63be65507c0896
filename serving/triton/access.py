"""Who may ask a server: tokens in a file, and certificates."""

from __future__ import annotations

import base64
import binascii
import hmac
import ssl
from pathlib import Path

from ...foundation.exceptions import MerlinSimError

LEAST_CHARACTERS = 16
"""Of a token: shorter ones can be guessed."""


class Access:
    """Knows the tokens that open a server.

    >>> access = Access(("a token of many characters",))
    >>> access.allows("Bearer a token of many characters"), access.allows("Bearer another")
    (True, False)

    Args:
        tokens: Any of them opens it; none at all leaves it open to whoever reaches it.
    """

    def __init__(self, tokens: tuple[str, ...] = ()) -> None:
        """Remember them."""
        self._tokens = tuple(token.encode() for token in tokens)

    @classmethod
    def read(cls, path: Path | None) -> Access:
        """Read a file of tokens, one a line; several let one be replaced by another.

        Raises:
            MerlinSimError: Where it cannot be read, is open to other users, or a token is short.
        """
        if path is None:
            return cls()
        try:
            mode, text = path.stat().st_mode, path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise MerlinSimError(f"`token_file`: {path} cannot be read: {error}") from error
        if mode & 0o077:
            raise MerlinSimError(
                f"`token_file`: {path} should be for its user alone: chmod 600 {path}"
            )
        tokens = tuple(filter(None, map(str.strip, text.splitlines())))
        if not tokens or min(map(len, tokens)) < LEAST_CHARACTERS:
            raise MerlinSimError(
                f"`token_file`: {path} should have a token a line, each of at least "
                f"{LEAST_CHARACTERS} characters, as `openssl rand -hex 32` makes one."
            )
        return cls(tokens)

    @property
    def is_open(self) -> bool:
        """Whether no token is asked for."""
        return not self._tokens

    def allows(self, authorization: str | None) -> bool:
        """Tell whether a header has a token: ``Bearer``, or as the password of ``Basic``."""
        if self.is_open:
            return True
        kind, _, given = (authorization or "").partition(" ")
        if kind.lower() == "basic":  # what a browser asks its user for
            try:
                given = base64.b64decode(given, validate=True).decode().partition(":")[2]
            except (binascii.Error, UnicodeDecodeError):
                return False
        elif kind.lower() != "bearer":
            return False
        found = given.strip().encode("utf-8", "surrogatepass")
        matches = [hmac.compare_digest(found, token) for token in self._tokens]  # all are compared
        return any(matches)


def tls_context(certificate: Path, key: Path) -> ssl.SSLContext:
    """Read a certificate, with those that lead to its root, and its key.

    Raises:
        MerlinSimError: Where they cannot be read or do not belong together.
    """
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    try:
        context.load_cert_chain(certificate, key)
    except (OSError, ssl.SSLError) as error:
        raise MerlinSimError(
            f"`tls_certificate`, `tls_key`: expected a certificate and its key as PEM in "
            f"{certificate} and {key}: {error}"
        ) from error
    return context
