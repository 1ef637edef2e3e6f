"""Authentication, permissions and quotas.

    identity       who a client is, and for how long
    tokens         API tokens: made, listed, revoked, recognised
    jwt            tokens of another issuer
    entitlements   quotas that the operator signed
    quotas         how much a tenant may use
    settings       the part of the configuration about all this
    gate           the single entry point: identify a client, then allow each request

Nothing here knows a transport or a command. Nothing here logs, and no secret is in a repr or an error.
"""
