"""Enqueueing as other programs do, in SQL."""

import json

ONE = "SELECT daybell.enqueue($1, $2::text::jsonb, $3::text::jsonb)"
MANY = "SELECT id, created FROM daybell.enqueue_many($1, $2::text[], $3::text::jsonb)"


async def enqueue(connection, job="resize", args="{}", **options):
    return await connection.fetchval(ONE, job, args, json.dumps(options))
