"""What a client of flashQ's dialect may send: one typed request a command, with the names that the wire uses.

Every field may also be spelt in camelCase, and some have a second name (`ALSO`); `null` stands for a field that was
left out. Values that only pass through (`data`, `result`, `value`) stay undecoded. What the numbers may be is the
engine's business. The requests stand in a file for each family, and are all found here.
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
