"""The program of the fake runner. It is copied into a runner's ``bin`` folder and must import only the stdlib."""
