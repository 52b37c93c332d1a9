"""HTTP in: webhook endpoints, health, metrics and the API over the queries of the app.

Must not reach into the core, an adapter or the store: what it shows comes from views, what it does goes to
the inbox.
"""
