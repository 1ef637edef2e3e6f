"""What an operator does with a cluster in PostgreSQL, besides starting its nodes: the functions of `stoker cluster`."""

from stoker.journal.postgres.cluster import ClusterStatus, status_of
from stoker.journal.postgres.schema import Cluster, install, upgrade

__all__ = ["Cluster", "ClusterStatus", "install", "status_of", "upgrade"]
