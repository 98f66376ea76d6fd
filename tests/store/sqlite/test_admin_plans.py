"""How SQLite finds keys, entries of the audit log, and what is left of a quota."""

import pytest

from daybell.store.sqlite import admin, gates

PLANS = {
    "find a key": (admin._FIND_KEY, "SEARCH k USING INDEX sqlite_autoindex_api_key_1 (digest=?)"),
    "touch a key": (admin._TOUCH, "SEARCH api_key USING INDEX sqlite_autoindex_api_key_2 (id=?)"),
    "list keys": (admin._LIST_KEYS, "SEARCH k USING INDEX api_key_tenant (tenant=?)"),
    "what was made": (gates._MADE, "SEARCH execution USING INTEGER PRIMARY KEY (rowid>?)"),
    "what runs": (gates._RUNNING, "SEARCH execution USING INDEX execution_running (worker>?)"),
    "what is pending": (
        gates._UNFINISHED,
        "SEARCH execution USING COVERING INDEX execution_claimable (lane=?)",
    ),
    "what waits": (gates._UNFINISHED, "SCAN execution USING COVERING INDEX execution_waiting_of"),
    "a page of the log": (
        "SELECT id FROM audit WHERE tenant = ? AND at >= ? ORDER BY at DESC, id DESC LIMIT ?",
        "SEARCH audit USING COVERING INDEX audit_order (tenant=? AND at>?)",
    ),
}


@pytest.mark.parametrize("name", PLANS)
async def test_it_goes_by_an_index(raw, name):
    statement, expected = PLANS[name]
    count = 2 if "?1" in statement else statement.count("?")
    rows = raw.execute(f"EXPLAIN QUERY PLAN {statement}", [None] * count)
    steps = [step for *_, step in rows]

    assert expected in steps
    assert not [step for step in steps if step.startswith("SCAN execution") and "USING" not in step]
