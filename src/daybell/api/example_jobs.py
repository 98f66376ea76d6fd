"""Jobs to begin with: one of each kind, as requests that the OpenAPI document shows."""

from __future__ import annotations

from typing import Any, Final

NEW_JOBS: Final[dict[str, dict[str, Any]]] = {
    "a command": {
        "name": "daily-report",
        "schedule": "0 0 * * *",
        "command": "python generate_report.py",
        "dependencies": ["extract", "load"],
        "retries": 3,
        "timeout": 3600,
    },
    "a command with more": {
        "name": "backup",
        "schedule": {"cron": "0 3 * * *", "tz": "Europe/Rome"},
        "command": {"run": ["pg_dump", "shop"], "directory": "/srv/backup", "retry_codes": [75]},
        "env": {"PGPASSWORD": {"secret": "BACKUP_PASSWORD"}},
    },
    "a request": {
        "name": "refresh-rates",
        "schedule": {"every": "15m"},
        "http": {
            "url": "https://example.org/rates",
            "headers": {"Authorization": {"join": ["Bearer ", {"secret": "API_TOKEN"}]}},
            "expect": [200, 304],
        },
    },
    "a statement": {
        "name": "purge-events",
        "schedule": "@daily",
        "sql": {
            "connection": "warehouse",
            "statement": "DELETE FROM events WHERE kind = :kind",
            "parameters": {"kind": "debug"},
        },
    },
    "a message": {
        "name": "stand-up",
        "schedule": "30 9 * * mon-fri",
        "notify": {"to": {"secret": "TEAM_CHAT"}, "title": "Stand-up", "body": "In ten minutes."},
    },
    "a workflow": {
        "name": "etl",
        "schedule": "0 2 * * *",
        "workflow": {
            "nodes": [
                {"name": "extract", "http": "https://example.org/files"},
                {
                    "name": "transform",
                    "command": ["clean", {"item": True, "path": "name"}],
                    "map": {"output": "extract", "path": "body.files"},
                    "retries": 2,
                },
                {
                    "name": "tell",
                    "notify": {"to": {"secret": "TEAM_CHAT"}, "body": "No files today."},
                },
            ],
            "edges": [{"from": "extract", "to": "tell", "when": "len(result.body.files) == 0"}],
            "max_running": 4,
        },
    },
    "a task, once, now": {"name": "import-42", "task": "load", "args": {"file": "42.csv"}},
    "from a template": {
        "name": "backup-shop",
        "template": "backup",
        "parameters": {"database": "shop"},
        "queue": "slow",
    },
}
CHANGED_JOBS: Final[dict[str, dict[str, Any]]] = {
    "another time": {"schedule": {"cron": "0 6 * * *", "tz": "Europe/Rome"}},
    "another command": {"command": "python generate_report.py --all"},
}
DECLARED_JOBS: Final[dict[str, dict[str, Any]]] = {
    "all that it is": {
        "command": "python generate_report.py",
        "schedule": "0 0 * * *",
        "timeout": 3600,
        "source": "apply",
    },
}
NEW_TEMPLATES: Final[dict[str, dict[str, Any]]] = {
    "a backup": {
        "name": "backup",
        "description": "Saves a database.",
        "parameters": {"database": "string", "password": {"type": "secret"}},
        "job": {
            "command": ["pg_dump", {"parameter": "database"}],
            "env": {"PGPASSWORD": {"parameter": "password"}},
            "schedule": "0 3 * * *",
        },
    },
}
