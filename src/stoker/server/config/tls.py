"""From the files of a `Tls` section to what a listener needs of them."""

import ssl

from stoker.model.errors import InvalidRequest
from stoker.server.config.tree import Tls


def tls_context(tls: Tls) -> ssl.SSLContext | None:
    """None = the listener speaks plainly. Files that cannot be used are refused with their name."""
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
    """Otherwise OpenSSL would ask the terminal, and a server would wait for ever."""
    raise ValueError("the key has a password: write it to a file without one")
