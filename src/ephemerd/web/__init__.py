"""HTTP in: webhook endpoints, health, metrics, the dashboard and the API over the queries of the app.

Operations are declared (`operations`, and `views`, `orders`, `logs`, `events`, `tokens`, `health`, which list them);
from that `api` makes routes and the OpenAPI document. `access` and `local` are the doors before it, `site` says which
stands before which socket.

Must not reach into the core, an adapter or the store: what it shows comes from views, what it does goes to
the inbox.
"""
