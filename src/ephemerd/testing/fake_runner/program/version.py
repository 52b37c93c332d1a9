"""The version that this copy of the fake runner says it is; whoever writes another one replaces this file."""

VERSION = "2.336.0"
