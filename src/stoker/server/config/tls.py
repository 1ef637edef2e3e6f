"""Makes the TLS context of a listener from the files of its `Tls` section."""

import ssl

from stoker.model.errors import InvalidRequest
from stoker.server.config.tree import Tls


def tls_context(tls: Tls) -> ssl.SSLContext | None:
    """None means no TLS. Unusable files are refused by name."""
    if not tls.is_on:
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    reading = f"{tls.cert} with {tls.key}"
    try:
        context.load_cert_chain(tls.cert, tls.key, password=_no_password)
        if tls.client_ca:
            reading = tls.client_ca
            context.load_verify_locations(tls.client_ca)
            context.verify_mode = ssl.CERT_REQUIRED
    except (OSError, ValueError) as error:  # an SSLError is an OSError
        raise InvalidRequest(f"TLS cannot use {reading}: {error}") from None
    return context


def _no_password() -> str:
    """Otherwise OpenSSL would ask on the terminal, and a server would wait forever."""
    raise ValueError("the key has a password: save it without one")
