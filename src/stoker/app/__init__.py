"""The app: functions become jobs that can be pushed, with their types, and handlers that a worker runs.

Everything here stands on the client and the worker; neither of them knows of it.
"""
