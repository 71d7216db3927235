"""What always holds (contract, section 7), as queries for the rows that break it.

They are asked in one statement, which sees one moment: while a race is on, and afterwards.
"""

from __future__ import annotations

from typing import Any

WAITING = "('scheduled', 'pending')"
ACTIVE = "('scheduled', 'pending', 'running')"
ENDED = "('done', 'dead', 'cancelled')"
# Whether a slot's bucket is the group, or the group and a value.
IN_GROUP = "substr(s.bucket, 1, length(g.name)) = g.name AND substr(s.bucket, length(g.name) + 1, 1) IN ('', ':')"

BROKEN = {
    "1 a job is running exactly if it has a token, a worker and a lease": """
        SELECT id FROM jobs
        WHERE CASE WHEN state = 'running' THEN token IS NULL OR worker IS NULL OR lease_until IS NULL
                   ELSE token IS NOT NULL OR worker IS NOT NULL OR lease_until IS NOT NULL END""",
    "1 a job is in one of six states, and has ended exactly if it has a moment at which it did": f"""
        SELECT id FROM jobs
        WHERE state NOT IN {ACTIVE} AND state NOT IN {ENDED}
           OR (state IN {ENDED}) <> (finished_at IS NOT NULL)
           OR (state = 'dead') <> (dead_reason IS NOT NULL)""",
    "2 a job in hand has not been settled by the token that holds it": """
        SELECT id FROM jobs WHERE state = 'running' AND token = settled_token""",
    "4 a unique key is held by at most one active job": f"""
        SELECT unique_key FROM jobs
        WHERE state IN {ACTIVE} AND unique_key IS NOT NULL
        GROUP BY unique_key
        HAVING count(*) > 1""",
    "4 an active job with a unique key holds it": f"""
        SELECT id FROM jobs
        WHERE state IN {ACTIVE} AND unique_key IS NOT NULL
          AND NOT EXISTS (SELECT * FROM jobs_keys k WHERE k.key = unique_key AND k.job_id = id)""",
    "4 a key is let go with its job, unless it is kept for ever": f"""
        SELECT k.key FROM jobs_keys k
        WHERE kept = 'row' AND NOT EXISTS (SELECT * FROM jobs WHERE id = job_id)
           OR kept = 'active' AND NOT EXISTS (SELECT * FROM jobs WHERE id = job_id AND state IN {ACTIVE})""",
    "5 a slot is below the limit of its group": f"""
        SELECT s.bucket, s.slot FROM jobs_slots s
        LEFT JOIN jobs_groups g ON {IN_GROUP}
        GROUP BY s.bucket, s.slot
        HAVING max(g.slots) IS NULL OR s.slot >= max(g.slots)""",
    "5 a bucket holds no more slots than its limit": f"""
        SELECT s.bucket FROM jobs_slots s
        JOIN jobs_groups g ON {IN_GROUP}
        GROUP BY s.bucket
        HAVING count(*) > max(g.slots)""",
    "5 a slot is held by a job that runs under its token": """
        SELECT s.job_id FROM jobs_slots s
        WHERE NOT EXISTS (SELECT * FROM jobs j WHERE j.id = s.job_id AND j.state = 'running' AND j.token = s.token)""",
    "5 a limited job in hand has a slot of its bucket": """
        SELECT j.id FROM jobs j
        WHERE j.state = 'running' AND j.bucket IS NOT NULL
          AND NOT EXISTS (SELECT * FROM jobs_slots s WHERE s.job_id = j.id)""",
    "6 what a sealed batch has not counted are its jobs that have not ended": f"""
        SELECT b.id FROM jobs_batches b
        LEFT JOIN jobs j ON j.batch_id = b.id AND j.state IN {ACTIVE}
        WHERE b.total IS NOT NULL
        GROUP BY b.id, b.total, b.done
        HAVING b.total - b.done <> count(j.id)""",
    "6 a batch has counted its ended jobs, and of them the failed ones": f"""
        SELECT b.id FROM jobs_batches b
        JOIN jobs j ON j.batch_id = b.id AND j.state IN {ENDED}
        GROUP BY b.id, b.done, b.failed
        HAVING count(*) > b.done OR count(CASE WHEN j.state <> 'done' THEN 1 END) > b.failed""",
    "6 a sealed batch is finished once all has been counted": """
        SELECT id FROM jobs_batches WHERE total = done AND finished_at IS NULL""",
    "6 a finished batch has its callback, and no other has": """
        SELECT id FROM jobs_batches
        WHERE (callback_id IS NOT NULL) <> (finished_at IS NOT NULL AND callback IS NOT NULL)""",
    "8 attempts are within their bounds": f"""
        SELECT id FROM jobs
        WHERE attempts NOT BETWEEN 0 AND max_attempts
           OR state = 'running' AND attempts = 0
           OR state IN {WAITING} AND attempts = max_attempts""",
}

# A statement's own "now" can be a moment before the youngest row it sees; not a second.
SOON = {
    "postgresql": "jobs_now() + interval '1 second'",
    "mysql": "(SELECT now + INTERVAL 1 SECOND FROM jobs_clock)",
    "sqlite": "(SELECT now + 1000 FROM jobs_clock)",
}
PENDING_BUT_NOT_DUE = "SELECT id FROM jobs WHERE state = 'pending' AND run_at > {soon}"


def assert_invariants(sql: Any) -> None:
    """Nothing the contract promises is broken in the database that ``sql`` (the fixture) talks to."""
    queries = BROKEN | {"a pending job is due": PENDING_BUT_NOT_DUE.format(soon=SOON[sql.dialect])}
    broken_one = "SELECT '{}' AS promise FROM (SELECT 1 AS one) AS one WHERE EXISTS ({})"
    checks = (broken_one.format(promise, query) for promise, query in queries.items())
    broken = [row["promise"] for row in sql(" UNION ALL ".join(checks))]
    assert not broken, "; ".join(broken)
