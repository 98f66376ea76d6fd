"""The one facade over a store that programs, the HTTP API and the command line share.

facade.py has the verbs; definitions.py, schedules.py, backfills.py, dead_letters.py, bulk.py,
logs.py and overview.py have some of them; requests.py and when.py read what people write.
"""

from daybell.client.answers import EnqueuedMany
from daybell.client.facade import Client
from daybell.store.ids import mint
from daybell.store.outcomes import Cancellation
from daybell.store.shares import Holder, Shares, set_holder

__all__ = ["Cancellation", "Client", "EnqueuedMany", "Holder", "Shares", "mint", "set_holder"]
