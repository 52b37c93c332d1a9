"""The forge look-alike and the fake runner, each promise by itself and without processes."""
