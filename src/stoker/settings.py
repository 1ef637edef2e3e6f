"""Settings from Python: the values that `stoker.connect(url, settings=...)` takes.

    import stoker
    from stoker import BackupSettings, JournalSettings, LocalSettings

    backups = BackupSettings(url="s3://bucket/prefix", interval_s=3600, keep=24)
    queue = stoker.connect("sqlite:///jobs.db", settings=LocalSettings(journal=JournalSettings(backups=backups)))

`LocalSettings` is for queues inside this process (`memory://`, `sqlite:///`), `RemoteSettings` for those of a server,
`RedisSettings` for those in Redis. A server is configured by a file, the environment and the options of `stoker serve`.
"""

from stoker.brokers.local.settings import LocalSettings
from stoker.brokers.redis.settings import RedisSettings
from stoker.brokers.remote.settings import RemoteSettings
from stoker.journal.backup import BackupSettings
from stoker.journal.bloom_filters import FilterSettings
from stoker.journal.sqlite import JournalSettings
from stoker.model.limits import Limits
from stoker.model.options import Settings

__all__ = [
    "BackupSettings",
    "FilterSettings",
    "JournalSettings",
    "Limits",
    "LocalSettings",
    "RedisSettings",
    "RemoteSettings",
    "Settings",
]
