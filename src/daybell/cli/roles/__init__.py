"""Long-running processes: worker, scheduler, server, and `daybell dev`, which is all of them."""
