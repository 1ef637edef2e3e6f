"""The queue on the network: transports, authentication, tenants, webhooks, metrics."""
