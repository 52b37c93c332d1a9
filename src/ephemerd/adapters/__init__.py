"""One external thing each, behind a port: forges, runtimes, stores, telemetry, the operating system.

Owns the translation between the outside and the domain. A read may be repeated here; repeating anything that
creates or destroys is the core's decision. Must not know a sibling; only `bootstrap` knows the classes.
"""
