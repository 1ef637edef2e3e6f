"""Authentication, permissions and quotas.

    identity       who a peer is, and for how long
    tokens         API tokens: made, listed, revoked, recognised
    jwt            tokens of another issuer
    entitlements   quotas that the operator signed
    quotas         how much a tenant may use
    settings       the part of the configuration about all this
    gate           the one door: identify a peer, then allow each request

Nothing here knows a transport or a command. Nothing here logs, and no secret is in a repr or an error.
"""
