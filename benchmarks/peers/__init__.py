"""The same job through other queues, on this machine and in this run: `make bench-peers`.

Other queues and a Redis live in environments of their own below `.venv-peers`. Each is given the settings with which it
is fastest for short jobs, among those that one would use; they are in `apps/`, one file a queue.
"""
