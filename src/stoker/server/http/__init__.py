"""HTTP: one call a request, REST, bulk NDJSON, events, metrics, health, and the description of all that.

listener    the port: start, stop
protocol    what one connection may take
front       who answers which path; the busy paths without a detour
visit       one request: who asks, may a browser ask that, its body
answers     replies and errors with a status that means what it says
calls       the native dialect, one request a call
plans       flashQ's dialect, one request a call
rest        flashQ's routes
bulk        many jobs in one request, one a line
feed        events from the log, each reader at its own pace
streams     events as server-sent events and over WebSocket
metrics     numbers for Prometheus
pages       health, statistics, workers, documentation
openapi     the description of all that, made from the tables
"""
