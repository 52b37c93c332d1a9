"""The schema as numbered SQL files, `0001_name.sql` and on, and nothing else; `migrate.py` applies them."""
