"""The demo's parts that need no process: its configuration, its figures, its promises, its words."""
