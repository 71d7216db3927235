-- jobs_sweep: promotes, rescues and prunes, a bounded number of each.
--
-- Any number of workers may sweep at once: every row is locked with SKIP LOCKED before it is touched, so that they share
-- the work instead of waiting for one another, and nobody who works is waited for either.
-- A lost claim is settled like any failure, by the token that held it, so that whoever comes back late finds it taken.

-- Take the jobs back whose lease is over: answers how many will run again, and how many were buried or cancelled.
CREATE OR REPLACE FUNCTION jobs__rescue(most integer, OUT rescued integer, OUT buried integer)
LANGUAGE plpgsql
AS $$
DECLARE
    ids     uuid[];
    tokens  uuid[];
    lost    text := '{"kind": "lost", "message": "the lease was over and its worker had not been heard of"}';
BEGIN
    SELECT array_agg(l.id), array_agg(l.token) INTO ids, tokens
      FROM (SELECT j.id, j.token
              FROM jobs j
             WHERE j.state = 'running'
               AND j.lease_until < jobs_now()
             ORDER BY j.token
             LIMIT most
               FOR UPDATE SKIP LOCKED) AS l;
    IF ids IS NULL THEN
        rescued := 0;
        buried := 0;
        RETURN;
    END IF;
    SELECT count(*) FILTER (WHERE s.state = 'scheduled'), count(*) FILTER (WHERE s.state <> 'scheduled')
      INTO rescued, buried
      FROM jobs__settle(ids, tokens, array_fill('failed'::text, ARRAY[cardinality(ids)]), array_fill(lost, ARRAY[cardinality(ids)]), '') AS s;
END
$$;

-- Free slots whose job does not run under their token.
CREATE OR REPLACE FUNCTION jobs__free_slots(most integer)
RETURNS integer
LANGUAGE plpgsql
AS $$
DECLARE
    freed  integer;
BEGIN
    DELETE FROM jobs_slots s
     WHERE s.job_id = ANY (ARRAY(
               SELECT i.job_id
                 FROM jobs_slots i
                WHERE (SELECT j.token FROM jobs j WHERE j.id = i.job_id) IS DISTINCT FROM i.token
                ORDER BY i.bucket, i.slot
                LIMIT most
                  FOR UPDATE SKIP LOCKED));
    GET DIAGNOSTICS freed = ROW_COUNT;
    RETURN freed;
END
$$;

CREATE OR REPLACE FUNCTION jobs__finish_batches(most integer)
RETURNS integer
LANGUAGE plpgsql
AS $$
DECLARE
    batch     jobs_batches;
    finished  integer := 0;
BEGIN
    FOR batch IN
        SELECT b.*
          FROM jobs_batches b
         WHERE b.sealed_at IS NOT NULL
           AND b.finished_at IS NULL
           AND b.done = b.total
         ORDER BY b.sealed_at
         LIMIT most
           FOR UPDATE SKIP LOCKED
    LOOP
        PERFORM jobs__finish_batch(batch);
        finished := finished + 1;
    END LOOP;
    RETURN finished;
END
$$;

-- Delete the ended jobs that have been kept for as long as their definitions say: of each state and name those that ended
-- first, found by stepping over the index from name to name.
CREATE OR REPLACE FUNCTION jobs__prune_jobs(most integer)
RETURNS integer
LANGUAGE plpgsql
AS $$
DECLARE
    ids  uuid[];
BEGIN
    ids := ARRAY(
        WITH RECURSIVE kind AS (
            (SELECT j.state, j.name
               FROM jobs j
              WHERE j.state IN ('done', 'dead', 'cancelled')
              ORDER BY j.state, j.name, j.finished_at
              LIMIT 1)
            UNION ALL
            SELECT n.state, n.name
              FROM kind k
             CROSS JOIN LATERAL (
                   SELECT j.state, j.name
                     FROM jobs j
                    WHERE j.state IN ('done', 'dead', 'cancelled')
                      AND (j.state, j.name) > (k.state, k.name)
                    ORDER BY j.state, j.name, j.finished_at
                    LIMIT 1) AS n
        )
        SELECT o.id
          FROM kind k
          LEFT JOIN jobs_definitions d ON d.name = k.name
         CROSS JOIN LATERAL (
               SELECT j.id
                 FROM jobs j
                WHERE j.state IN ('done', 'dead', 'cancelled')
                  AND (j.state, j.name) >= (k.state, k.name)
                  AND (j.state, j.name) <= (k.state, k.name)
                  AND j.finished_at <= jobs_now() - CASE k.state WHEN 'dead' THEN d.keep_dead_ms ELSE coalesce(d.keep_done_ms, 86400000) END * interval '1 millisecond'
                ORDER BY j.state, j.name, j.finished_at
                LIMIT most
                  FOR UPDATE SKIP LOCKED) AS o
         LIMIT most);
    PERFORM jobs__remove(ids);
    RETURN cardinality(ids);
END
$$;

-- Delete what outlived its use: finished batches after a day, workers not heard of for a day, and keys kept for ever
-- longer than the setting says, once their jobs are gone.
CREATE OR REPLACE FUNCTION jobs__prune_rest(most integer)
RETURNS integer
LANGUAGE plpgsql
AS $$
DECLARE
    pruned  integer;
    number  integer;
BEGIN
    DELETE FROM jobs_batches b
     WHERE b.id = ANY (ARRAY(
               SELECT f.id
                 FROM jobs_batches f
                WHERE f.finished_at IS NOT NULL
                  AND f.finished_at <= jobs_now() - interval '1 day'
                ORDER BY f.finished_at
                LIMIT most
                  FOR UPDATE SKIP LOCKED));
    GET DIAGNOSTICS pruned = ROW_COUNT;

    DELETE FROM jobs_workers w
     WHERE w.id = ANY (ARRAY(
               SELECT g.id
                 FROM jobs_workers g
                WHERE g.live_until <= jobs_now() - interval '1 day'
                LIMIT most
                  FOR UPDATE SKIP LOCKED));
    GET DIAGNOSTICS number = ROW_COUNT;
    pruned := pruned + number;

    DELETE FROM jobs_keys k
     WHERE k.key = ANY (ARRAY(
               SELECT o.key
                 FROM jobs_keys o
                WHERE o.kept = 'ever'
                  AND o.since <= jobs_now() - jobs__setting('keep_keys_ms')::bigint * interval '1 millisecond'
                  AND (SELECT j.id FROM jobs j WHERE j.id = o.job_id) IS NULL
                ORDER BY o.since
                LIMIT most
                  FOR UPDATE SKIP LOCKED));
    GET DIAGNOSTICS number = ROW_COUNT;
    RETURN pruned + number;
END
$$;

CREATE OR REPLACE FUNCTION jobs_sweep(options text DEFAULT NULL)
RETURNS TABLE (promoted integer, rescued integer, buried integer, slots_freed integer, batches_finished integer, pruned integer)
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT
SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off SET plan_cache_mode = force_generic_plan
AS $$
DECLARE
    most   integer := 1000;
    value  text COLLATE "C";
BEGIN
    FOR value IN SELECT m.value FROM jobs__members(options COLLATE "C", 'options', ARRAY['limit']) AS m WHERE m.value IS NOT NULL LOOP
        most := jobs__integer(value, 'limit', 1, 100000);
    END LOOP;

    promoted := jobs__promote(most);
    SELECT r.rescued, r.buried INTO rescued, buried FROM jobs__rescue(most) AS r;
    slots_freed := jobs__free_slots(most);
    batches_finished := jobs__finish_batches(most);
    pruned := jobs__prune_jobs(most) + jobs__prune_rest(most);
    RETURN NEXT;
END
$$;
