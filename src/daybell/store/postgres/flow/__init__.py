"""Flow control: executions that wait until there is room for them."""
