-- jobs_take_slot, jobs_free_slot: the permits of a bucket.
--
-- A permit is a row, and (bucket, slot) is its primary key: of two takers of one slot the second could not insert it. No
-- number is ever counted up or down, so none can be wrong. Claim takes and settle frees by the same rows; the sweep frees
-- those whose job does not run under their token.
--
--     INSERT INTO jobs_take_slot (bucket, job_id, token) VALUES ('smtp:acme', '0199…', '6f9f…')
--       RETURNING (SELECT value FROM jobs_answered);

DROP VIEW IF EXISTS jobs_take_slot;
CREATE VIEW jobs_take_slot (bucket, job_id, token) AS
SELECT NULL, NULL, NULL WHERE false;

CREATE TRIGGER jobs_take_slot_called INSTEAD OF INSERT ON jobs_take_slot
BEGIN
    DELETE FROM jobs__replies;

    SELECT CASE WHEN (SELECT id FROM jobs__uuid WHERE given = json_quote(CAST(new.job_id AS TEXT))) IS NULL
                THEN RAISE(ABORT, 'PJ003 the job_id is not a UUID; give the id of the job that is to hold the slot')
                WHEN (SELECT id FROM jobs__uuid WHERE given = json_quote(CAST(new.token AS TEXT))) IS NULL
                THEN RAISE(ABORT, 'PJ003 the token is not a UUID; give the token the job was claimed with') END;

    INSERT INTO jobs__take_slot (bucket, job_id, token, now)
    SELECT new.bucket, lower(new.job_id), lower(new.token), now
      FROM jobs_clock;

    INSERT INTO jobs__replies (position, answer)
    SELECT -1, slot
      FROM jobs_slots
     WHERE job_id = lower(new.job_id)
       AND bucket = new.bucket
       AND token = lower(new.token);
END;

-- Gives a job the lowest free slot of a bucket, if there is one below the limit and the job has none.
DROP VIEW IF EXISTS jobs__take_slot;
CREATE VIEW jobs__take_slot (bucket, job_id, token, now) AS
SELECT NULL, NULL, NULL, NULL WHERE false;

CREATE TRIGGER jobs__take_slot_called INSTEAD OF INSERT ON jobs__take_slot
BEGIN
    INSERT INTO jobs_slots (bucket, slot, job_id, token, taken_at)
    SELECT new.bucket, free.slot, new.job_id, new.token, new.now
      FROM (SELECT min(slot) AS slot
              FROM (SELECT 0 AS slot
                     UNION ALL
                    SELECT slot + 1 FROM jobs_slots WHERE bucket = new.bucket) AS next
             WHERE NOT EXISTS (SELECT 1 FROM jobs_slots AS held WHERE held.bucket = new.bucket AND held.slot = next.slot)) AS free
      JOIN jobs_groups AS g ON g.name = substr(new.bucket, 1, instr(new.bucket || ':', ':') - 1)
     WHERE free.slot < g.slots
       AND (SELECT count(*) FROM jobs_slots WHERE bucket = new.bucket) < g.slots
       AND NOT EXISTS (SELECT 1 FROM jobs_slots WHERE job_id = new.job_id);
END;

DROP VIEW IF EXISTS jobs_free_slot;
CREATE VIEW jobs_free_slot (bucket, slot, token) AS
SELECT NULL, NULL, NULL WHERE false;

CREATE TRIGGER jobs_free_slot_called INSTEAD OF INSERT ON jobs_free_slot
BEGIN
    DELETE FROM jobs__replies;

    SELECT CASE WHEN CAST(CAST(new.slot AS INTEGER) AS TEXT) <> CAST(new.slot AS TEXT)
                THEN RAISE(ABORT, 'PJ003 slot is not a whole number; pass the number of the slot, from 0')
                WHEN new.token IS NOT NULL AND (SELECT id FROM jobs__uuid WHERE given = json_quote(CAST(new.token AS TEXT))) IS NULL
                THEN RAISE(ABORT, 'PJ003 the token is not a UUID; give the token the job was claimed with') END;

    DELETE FROM jobs_slots WHERE bucket = new.bucket AND slot = new.slot AND token = lower(new.token);
    INSERT INTO jobs__replies (position, answer) VALUES (-1, changes());
END;
