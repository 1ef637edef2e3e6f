"""The same job through other queues, on this machine and in the same run: `make bench-peers`.

Other queues have their own environments below `.venv-peers`. Each has the settings with which it is fastest
for short jobs, among realistic ones; they are in `apps/`, one file for each queue.
"""
