"""Commands, one module per room; `daybell.cli` imports a module only when it is used."""
