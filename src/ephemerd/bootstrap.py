"""Where the concrete classes are chosen and joined. The only place that knows them; must not know `testing`."""
