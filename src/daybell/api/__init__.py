"""The HTTP API: the client's operations under URLs, for callers with a key.

`app.py` builds the application. A request passes `guard.py` (host, origin, size and time),
`auth.py` (key and tenant), `needs` in `caller.py` (role and scope), `requests.py` (body and query)
and one function in `routes/`. Triggers and bulk enqueues take the fast path in `app.py`.
`caller.py` also turns errors into responses. `contract.py` describes the operations.
"""

from daybell.api.app import create_api
from daybell.api.caller import ApiOptions

__all__ = ["ApiOptions", "create_api"]
