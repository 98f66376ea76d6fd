"""`daybell apply`: read job files, plan the changes, and make them."""
