"""HTTP: one call per request, REST, bulk NDJSON, events, metrics, health, and the description of all that.

listener    the port: start, stop
protocol    the limits of one connection
app         puts the parts together
front       receives every request; paths finds its handler
visit       one request: its client, browser checks, its body
cors        sites whose pages may use the API
answers     replies and errors with the right status
calls       the native dialect, one request per call
plans       flashQ's dialect, one request per call
rest        flashQ's routes, from the table in routes
bulk        many jobs in one request, one per line
feed        events from the log, each reader at its own pace
streams     events as server-sent events and over WebSocket
metrics     numbers for Prometheus
pages       health, statistics, workers, documentation
webhooks    the routes of outgoing webhooks
openapi     the description of all that, made from the tables (others, examples, docs)
"""
