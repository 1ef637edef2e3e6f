"""The demo: an application with one job of every kind, and the story that `stoker demo` tells with it.

It stands on what every user has: the app, the client and the command line's worker.
"""
