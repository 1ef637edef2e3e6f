"""Who may do what, and how much of it.

    identity       who a peer is, and for how long
    tokens         API tokens: made, listed, revoked, recognised
    jwt            tokens that somebody else signed
    entitlements   quotas that the operator signed
    quotas         how much a tenant may use
    settings       what the configuration holds of all this
    gate           the one door: identify a peer, then allow each request

Nothing here knows a transport or a command. Nothing here logs, and no secret is in a repr or an error.
"""
