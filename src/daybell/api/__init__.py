"""The HTTP API: the client's verbs under URLs, for whoever has a key.

app.py puts the parts together. A request passes guard.py (is it one that we serve at all?), auth.py
(whose is it?), `needs` in caller.py (may they?), body.py (what does it say?) and one function of a
resource's module: jobs, executions, queues and so on; triggers and bulk enqueues get to theirs by a
shorter way, lane.py. What goes wrong becomes an answer in problems.py. contract.py says all of it
in the OpenAPI document.
"""

from daybell.api.app import create_api
from daybell.api.caller import ApiOptions

__all__ = ["ApiOptions", "create_api"]
