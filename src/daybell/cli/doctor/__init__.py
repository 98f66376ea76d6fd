"""`daybell doctor`: checks of settings, store and workers, and their report."""
