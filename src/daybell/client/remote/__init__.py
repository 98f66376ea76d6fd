"""The client's verbs over HTTP: for programs and terminals that cannot reach the database.

transport.py asks and answers, problems.py turns what a server says went wrong into our errors,
reading.py makes things of JSON, and one module per resource has the verbs.
"""
