"""The log in PostgreSQL: one seat of a cluster, its fence, its lease, checkpoints and recovery.

`schema.py` installs and checks the tables, `seats.py` says which process has which shards, `lease.py` keeps a seat,
`store.py` opens one.
"""
