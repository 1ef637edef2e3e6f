"""The keys that verify signed tokens: from the configuration and from a JWKS file.

When loaded, each key is bound to one algorithm, and checked for the type and size that the algorithm needs. Besides
shared secrets only public keys are accepted, because verifying needs no more. An error names the key, never its
content.
"""

from hashlib import sha256
from pathlib import Path
from typing import Any, Final, get_args

import jwt
import msgspec
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, EllipticCurvePublicKey
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from stoker.model.errors import InvalidRequest
from stoker.server.auth.files import Stamp, read_guarded, stamp
from stoker.server.auth.identity import Grant
from stoker.server.auth.settings import Algorithm, JwtKey, JwtSettings
from stoker.server.auth.strict_json import decode_object

ALGORITHMS: Final[tuple[Algorithm, ...]] = get_args(Algorithm)

SECRET_BYTES_MIN: Final = 32
"""RFC 7518: a key for HS256 is at least as long as its hash."""

RSA_BITS_MIN: Final = 2048

KEYS_MAX: Final = 256
"""Far beyond any rotation."""

FILE_BYTES_MAX: Final = 1024 * 1024

KID_CHARS_MAX: Final = 256


class SigningKey(msgspec.Struct, frozen=True):
    kid: str | None
    algorithm: Algorithm
    material: Any
    """In PyJWT's form."""
    print: bytes
    """A fingerprint that tells whether a key has changed."""
    grant: Grant

    def __repr__(self) -> str:
        return f"Key(kid={self.kid!r}, algorithm={self.algorithm})"


class KeySet:
    """All keys of a configuration. Unchanged keys keep their grants from the set before."""

    def __init__(self, settings: JwtSettings, before: "KeySet | None" = None) -> None:
        files = [Path(key.key_file) for key in settings.keys if key.key_file is not None]
        self.stamps: dict[Path, Stamp] = {path: stamp(path) for path in files}
        found = [_configured(key, number) for number, key in enumerate(settings.keys, 1)]
        if settings.jwks_file is not None:
            path = Path(settings.jwks_file)
            more, self.stamps[path] = _from_jwks(path)
            found += more
        if not found:
            raise InvalidRequest("jwt is configured without a key: give keys, or a jwks_file")
        if len(found) > KEYS_MAX:
            raise InvalidRequest(f"{len(found)} keys for JWT: at most {KEYS_MAX}")
        known = {(key.kid, key.print): key for key in before} if before else {}
        self._keys = [known.get((key.kid, key.print), key) for key in found]
        kids = [key.kid for key in self._keys if key.kid is not None]
        doubled = {kid for kid in kids if kids.count(kid) > 1}
        if doubled:
            raise InvalidRequest(f"keys for JWT: more than one has the kid {min(doubled)!r}: each needs its own")
        self._by_kid = {key.kid: key for key in self._keys if key.kid is not None}

    def __iter__(self) -> Any:
        return iter(self._keys)

    def grants(self) -> set[Grant]:
        return {key.grant for key in self._keys}

    def by_kid(self, kid: str) -> SigningKey | None:
        return self._by_kid.get(kid)

    def by_algorithm(self, algorithm: str) -> list[SigningKey]:
        return [key for key in self._keys if key.algorithm == algorithm]


def _configured(setting: JwtKey, number: int) -> SigningKey:
    where = f"key {number} for JWT"
    if (setting.key is None) == (setting.key_file is None):
        raise InvalidRequest(f"{where}: expected either key or key_file")
    if setting.key is not None:
        material = setting.key.encode()
    else:
        material = read_guarded(Path(str(setting.key_file)), f"{where}:", FILE_BYTES_MAX)[0]
        if setting.algorithm == "HS256":
            material = material.rstrip(b"\r\n")  # editors and `echo` leave a line end
    try:
        prepared = jwt.get_algorithm_by_name(setting.algorithm).prepare_key(material)
    except (jwt.PyJWTError, UnsupportedAlgorithm, ValueError, TypeError):
        raise InvalidRequest(f"{where} is not one for {setting.algorithm}: {_expected(setting.algorithm)}") from None
    return _bound(setting.kid, setting.algorithm, prepared, where)


def _from_jwks(path: Path) -> tuple[list[SigningKey], Stamp]:
    data, read = read_guarded(path, "the JWKS file", FILE_BYTES_MAX)
    try:
        entries = decode_object(data).get("keys")
    except ValueError as error:
        raise InvalidRequest(f"the JWKS file {path}: {error}") from None
    if not isinstance(entries, list):
        raise InvalidRequest(f"the JWKS file {path}: expected an object with a list of keys")
    found = [_from_jwk(entry, f"the JWKS file {path}, key {number}") for number, entry in enumerate(entries, 1)]
    keys = [key for key in found if key is not None]
    if not keys:
        raise InvalidRequest(f"the JWKS file {path} holds no key for {', '.join(ALGORITHMS)}")
    return keys, read


def _from_jwk(entry: Any, where: str) -> SigningKey | None:
    """None for keys with another purpose: issuers publish all their keys in one file."""
    if not isinstance(entry, dict):
        raise InvalidRequest(f"{where}: expected an object")
    algorithm = entry.get("alg") or _usual_algorithm(entry)
    if algorithm not in ALGORITHMS or entry.get("use", "sig") != "sig":
        return None
    kid = entry.get("kid")
    if kid is not None and not isinstance(kid, str):
        raise InvalidRequest(f"{where}: expected a text as kid")
    if "d" in entry:
        raise InvalidRequest(f"{where} is a private key: leave the private part with the issuer")
    try:
        material = jwt.PyJWK(entry, algorithm).key
    except (jwt.PyJWTError, UnsupportedAlgorithm, ValueError, TypeError, KeyError, AttributeError):
        raise InvalidRequest(f"{where} is not one for {algorithm}: {_expected(algorithm)}") from None
    return _bound(kid, algorithm, material, where)


def _usual_algorithm(entry: dict[str, Any]) -> str | None:
    usual = {"RSA": "RS256", "oct": "HS256", ("EC", "P-256"): "ES256", ("OKP", "Ed25519"): "EdDSA"}
    kind, curve = entry.get("kty"), entry.get("crv")
    return usual.get(str(kind)) or usual.get((str(kind), str(curve)))


def _bound(kid: str | None, algorithm: Algorithm, material: Any, where: str) -> SigningKey:
    if kid is not None and not 1 <= len(kid) <= KID_CHARS_MAX:
        raise InvalidRequest(f"{where}: a kid has 1 to {KID_CHARS_MAX} characters")
    if not _fits(algorithm, material):
        raise InvalidRequest(f"{where} is not one for {algorithm}: {_expected(algorithm)}")
    if isinstance(material, bytes):
        form = material
    else:
        form = material.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    return SigningKey(
        kid, algorithm, material, sha256(f"{algorithm}:".encode() + form).digest(), Grant("the token's key")
    )


def _fits(algorithm: Algorithm, material: Any) -> bool:
    match algorithm:
        case "HS256":
            return isinstance(material, bytes) and len(material) >= SECRET_BYTES_MIN
        case "RS256":
            return isinstance(material, RSAPublicKey) and material.key_size >= RSA_BITS_MIN
        case "ES256":
            return isinstance(material, EllipticCurvePublicKey) and isinstance(material.curve, SECP256R1)
        case "EdDSA":
            return isinstance(material, Ed25519PublicKey)


def _expected(algorithm: Algorithm) -> str:
    return {
        "HS256": f"expected a secret of {SECRET_BYTES_MIN} bytes or more, not a PEM or SSH key",
        "RS256": f"expected a public RSA key of {RSA_BITS_MIN} bits or more",
        "ES256": "expected a public key on the curve P-256",
        "EdDSA": "expected a public Ed25519 key",
    }[algorithm]
