-- jobs_take_slot, jobs_free_slot: the numbered permits of a bucket.
--
-- A slot is taken by inserting it: the primary key (bucket, slot) lets one of two takers win, and the other, who waited
-- for the first to commit, goes on to the next number. Nothing needs to be counted for that: a number below the limit
-- is free or it is not. Only after a limit was lowered, while numbers above it are still held, are the held ones counted.
-- A slot is valid while its job runs under its token; the sweep frees the others.

-- The slot that a claim has, or gets above the number `above`; NULL when there is none. A claim that takes several
-- passes the last number it took in the bucket: those who only go upwards do not deadlock with one another.
CREATE OR REPLACE FUNCTION jobs__take_slot(bucket text, job_id uuid, token uuid, above integer)
RETURNS integer
LANGUAGE plpgsql
AS $$
#variable_conflict use_column
DECLARE
    most  integer := (SELECT g.slots FROM jobs_groups g WHERE g.name = split_part(jobs__take_slot.bucket, ':', 1));
    held  jobs_slots;
    free  integer;
BEGIN
    LOOP
        SELECT s.* INTO held FROM jobs_slots s WHERE s.job_id = jobs__take_slot.job_id;
        IF FOUND THEN
            RETURN CASE WHEN (held.bucket, held.token) = (jobs__take_slot.bucket, jobs__take_slot.token) THEN held.slot END;
        END IF;

        IF NOT EXISTS (SELECT FROM jobs_slots s WHERE s.bucket = jobs__take_slot.bucket AND s.slot = above + 1) THEN
            free := above + 1;
        ELSE
            SELECT s.slot + 1 INTO free
              FROM jobs_slots s
             WHERE s.bucket = jobs__take_slot.bucket
               AND s.slot > above
               AND NOT EXISTS (SELECT FROM jobs_slots n WHERE n.bucket = s.bucket AND n.slot = s.slot + 1)
             ORDER BY s.bucket, s.slot
             LIMIT 1;
            free := coalesce(free, above + 1);  -- when that one was freed between the two looks
        END IF;

        IF most IS NULL OR free >= most THEN
            RETURN NULL;
        ELSIF EXISTS (SELECT FROM jobs_slots s WHERE s.bucket = jobs__take_slot.bucket AND s.slot >= most)
              AND (SELECT count(*) FROM jobs_slots s WHERE s.bucket = jobs__take_slot.bucket) >= most
        THEN
            RETURN NULL;
        END IF;

        INSERT INTO jobs_slots (bucket, slot, job_id, token, taken_at)
        VALUES (jobs__take_slot.bucket, free, jobs__take_slot.job_id, jobs__take_slot.token, jobs_now())
        ON CONFLICT DO NOTHING;
        IF FOUND THEN
            RETURN free;
        END IF;
        above := free;
    END LOOP;
END
$$;

CREATE OR REPLACE FUNCTION jobs_take_slot(bucket text, job_id uuid, token uuid)
RETURNS integer
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT
SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off SET plan_cache_mode = force_generic_plan
AS $$
BEGIN
    IF job_id IS NULL OR token IS NULL THEN
        PERFORM jobs__refuse('PJ003', 'job_id or token is missing', 'pass the id of the job that is to hold the slot, and the token it was claimed with');
    END IF;
    RETURN jobs__take_slot(bucket COLLATE "C", job_id, token, -1);
END
$$;

CREATE OR REPLACE FUNCTION jobs_free_slot(bucket text, slot integer, token uuid)
RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT
SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off SET plan_cache_mode = force_generic_plan
AS $$
#variable_conflict use_column
BEGIN
    DELETE FROM jobs_slots s
     WHERE s.bucket = jobs_free_slot.bucket COLLATE "C"
       AND s.slot = jobs_free_slot.slot
       AND s.token = jobs_free_slot.token;
    RETURN FOUND;
END
$$;
