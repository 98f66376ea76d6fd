"""The version of the package, in a module of its own that every layer may import."""

VERSION = "0.1.0.dev0"
