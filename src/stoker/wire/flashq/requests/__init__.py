"""The requests of flashQ's dialect: one typed request per command, with the names that the wire uses.

Every field may also be spelt in camelCase, and some have a second name (`ALSO`); `null` stands for a field that was
left out. Values that only pass through (`data`, `result`, `value`) stay undecoded. The engine checks the ranges of
numbers. There is a file for each family of requests; this package exports them all.
"""

from stoker.wire.flashq.requests.connection import *
from stoker.wire.flashq.requests.consuming import *
from stoker.wire.flashq.requests.jobs import *
from stoker.wire.flashq.requests.keyvalue import *
from stoker.wire.flashq.requests.producing import *
from stoker.wire.flashq.requests.queues import *
from stoker.wire.flashq.requests.schedules import *
from stoker.wire.flashq.requests.shape import *
from stoker.wire.flashq.requests.values import *
from stoker.wire.flashq.requests.workflows import *
