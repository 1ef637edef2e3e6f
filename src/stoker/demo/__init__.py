"""The demo: an application with one job of every kind, and the script of `stoker demo`.

It uses only what every user has: the app, the client and the command line's worker.
"""
