"""The HTTP API: the client's operations under URLs, for callers with a key.

`app.py` builds the application. A request passes `guard.py` (host, origin, size and time),
`auth.py` (key and tenant), its `Route` in `router.py` (role, scope, query and body) and one
function in `routes/`. `caller.py` turns errors into responses. `openapi.py` describes the routes.
"""

from daybell.api.app import create_api
from daybell.api.caller import ApiOptions

__all__ = ["ApiOptions", "create_api"]
