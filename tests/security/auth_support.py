"""Keys, tokens and a clock for the tests of authentication."""

import base64
import hashlib
import hmac
import json
from functools import cache
from pathlib import Path
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat

from stoker.model.errors import Unauthenticated
from stoker.server.auth.gate import Gate
from stoker.server.auth.settings import AuthSettings, JwtKey, JwtSettings

NOW = 1_800_000_000.0
SECRET = "canary-of-32-bytes-or-a-bit-more-for-HS256"
AUDIENCE, ISSUER = "stoker", "https://issuer.example"


class Clock:
    def __init__(self, now: float = NOW) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


@cache
def private_key(algorithm: str, number: int = 0) -> Any:
    match algorithm:
        case "RS256":
            return rsa.generate_private_key(65537, 2048)
        case "ES256":
            return ec.generate_private_key(ec.SECP256R1())
        case "EdDSA":
            return ed25519.Ed25519PrivateKey.generate()
        case _:
            return f"{SECRET}-{number}"


def public_pem(algorithm: str, number: int = 0) -> str:
    key = private_key(algorithm, number)
    if isinstance(key, str):
        return key
    return key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo).decode()  # type: ignore[no-any-return]


def private_pem(algorithm: str) -> str:
    key = private_key(algorithm)
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()  # type: ignore[no-any-return]


def jwk(algorithm: str, kid: str | None, number: int = 0, **more: Any) -> dict[str, Any]:
    key = private_key(algorithm, number)
    signer = jwt.get_algorithm_by_name(algorithm)
    found = signer.to_jwk(key.encode() if isinstance(key, str) else key.public_key(), as_dict=True)
    found.pop("key_ops", None)
    return found | ({"kid": kid} if kid is not None else {}) | more


def write_jwks(path: Path, *keys: dict[str, Any]) -> Path:
    path.write_text(json.dumps({"keys": keys}))
    return path


def claims(**changed: Any) -> dict[str, Any]:
    """Good ones. None takes a claim away."""
    good = {
        "sub": "ann",
        "aud": AUDIENCE,
        "iss": ISSUER,
        "exp": NOW + 3600,
        "nbf": NOW - 1,
        "iat": NOW - 1,
        "tenant": "acme",
        "scope": "openid produce read",
    }
    return {name: value for name, value in (good | changed).items() if value is not None}


def signed(algorithm: str = "HS256", kid: str | None = "k", number: int = 0, **changed: Any) -> str:
    return sign_text(json.dumps(claims(**changed)), algorithm, {"kid": kid} if kid is not None else {}, number)


def sign_text(payload: str, algorithm: str = "HS256", header: dict[str, Any] | None = None, number: int = 0) -> str:
    headers = header if header is not None else {"kid": "k"}
    return jwt.PyJWS().encode(payload.encode(), private_key(algorithm, number), algorithm, headers)


def sealed_by_hand(header: str, payload: str, secret: bytes) -> str:
    """HMAC-SHA256 over whatever; libraries refuse to make some of the tokens that an attacker makes."""
    signing = f"{b64(header.encode())}.{b64(payload.encode('utf-8', 'surrogatepass'))}"
    return f"{signing}.{b64(hmac.digest(secret, signing.encode(), hashlib.sha256))}"


def b64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def jwt_settings(*algorithms: str, **changed: Any) -> JwtSettings:
    """A key for each algorithm; the first is named `k`."""
    keys = tuple(
        JwtKey(algorithm=algorithm, kid="k" if not number else f"k-{algorithm}", key=public_pem(algorithm))  # type: ignore[arg-type]
        for number, algorithm in enumerate(algorithms or ("HS256",))
    )
    return JwtSettings(**({"keys": keys, "audience": AUDIENCE, "issuer": ISSUER} | changed))


def jwt_gate(*algorithms: str, clock: Clock | None = None, **changed: Any) -> Gate:
    return Gate(AuthSettings(jwt=jwt_settings(*algorithms, **changed)), clock or Clock())


def refusal(gate: Gate, credential: str | None, *, loopback: bool = True) -> str:
    """Why this credential is refused; an error if it is not."""
    try:
        found = gate.identify(credential, loopback=loopback)
    except Unauthenticated as error:
        return error.message
    raise AssertionError(f"{found.name} was let in")
