"""`python -m ephemerd` is the same program as `ephemerd`."""

from ephemerd.cli.main import main

if __name__ == "__main__":
    main()
