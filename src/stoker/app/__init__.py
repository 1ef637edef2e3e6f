"""The app: turns functions into typed jobs that can be pushed, and into handlers that a worker runs.

It builds on the client and the worker; neither of them knows of it.
"""
