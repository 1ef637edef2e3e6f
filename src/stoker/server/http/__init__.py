"""HTTP: one call a request, REST, bulk NDJSON, events, metrics, health, and the description of all that.

listener    the port: start, stop
protocol    what one connection may take
app         the parts, put together
front       every request comes in here; paths leads it to whoever answers
visit       one request: who asks, may a browser ask that, its body
cors        sites whose pages may use the API
answers     replies and errors with a status that means what it says
calls       the native dialect, one request a call
plans       flashQ's dialect, one request a call
rest        flashQ's routes, from the table in routes
bulk        many jobs in one request, one a line
feed        events from the log, each reader at its own pace
streams     events as server-sent events and over WebSocket
metrics     numbers for Prometheus
pages       health, statistics, workers, documentation
webhooks    the routes of outgoing webhooks
openapi     the description of all that, made from the tables (others, examples, docs)
"""
