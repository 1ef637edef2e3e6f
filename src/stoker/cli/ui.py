"""`stoker ui`: the dashboard of a data directory or of a remote server, on this machine."""

import click

from stoker.cli.parameters import connected, directory_of, examples, look_at

DEFAULT_PORT = 6792


@click.command(
    epilog=examples("stoker ui", "stoker ui --url tcp://queue.example:6789", "stoker ui --port 8080 --read-only")
)
@click.option("--port", default=DEFAULT_PORT, show_default=True, help="The port on 127.0.0.1; 0 takes a free one.")
@click.option("--read-only", is_flag=True, help="Show, and change nothing.")
@connected
def ui(port: int, read_only: bool, url: str | None, tenant: str) -> int:
    """Serve the dashboard of the queue at --url until Ctrl-C, for this machine only.

    `stoker serve` has a dashboard of its own at /ui/. This command is for data directories without a server, and for
    servers elsewhere: pages then do what your token may do. The page Connection says what this dashboard cannot show,
    and why.
    """
    from stoker.brokers.connect import DEFAULT_URL
    from stoker.server.client_broker import ClientBroker
    from stoker.server.config import DashboardSettings, ServerConfig
    from stoker.server.config.tree import GrpcListener, HttpListener, TcpListener, WebhookSettings
    from stoker.server.run import run_over

    config = ServerConfig(
        tcp=TcpListener(listen="off"),
        grpc=GrpcListener(listen="off"),
        http=HttpListener(listen=f"127.0.0.1:{port}"),
        dashboard=DashboardSettings(read_only=read_only),
        webhooks=WebhookSettings(enabled=False),  # the server behind the URL posts its own
    )
    client = look_at(url, tenant)
    client.list_queues()  # a wrong address or token is an error here, not a page
    url = url or DEFAULT_URL
    return run_over(config, ClientBroker(client.broker, tenant, url, directory_of(url)))
