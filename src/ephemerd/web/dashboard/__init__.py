"""The dashboard: pages for people over the queries of the app, rendered here, brought up to date in place.

Owns the pages' routes, view models, templates and static files (all of them shipped, none fetched from
elsewhere). Must not reach into the core, an adapter or the store, nor decide anything: an order goes to the
operator of the app, and what a page says comes from a view.
"""
