"""`python -m tidemill`: the same as the command `tidemill`."""

from tidemill.cli.main import main

if __name__ == "__main__":
    main()
