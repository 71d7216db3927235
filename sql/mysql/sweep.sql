-- jobs_sweep: promotes, rescues and prunes, a bounded number of each.
--
-- Any number of workers may sweep at once: every row is locked with SKIP LOCKED before it is touched, so that they share
-- the work instead of waiting for one another, and nobody who works is waited for either. As in a claim, rows are read without locking
-- and then locked by their primary key alone.
-- A lost claim is settled like any failure, by the token that held it, so that whoever comes back late finds it taken.
--
-- (LIMIT 1000000 keeps a derived table to itself. MariaDB would merge it, forget its STRAIGHT_JOIN, and lock all jobs on its way to one.)

DELIMITER //

-- Take the jobs back whose lease is over: answers how many will run again, and how many were buried or cancelled.
DROP PROCEDURE IF EXISTS jobs__rescue//
CREATE PROCEDURE jobs__rescue(most INT, now DATETIME(6), OUT rescued INT, OUT buried INT)
SQL SECURITY DEFINER
BEGIN
    DECLARE said LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;
    DECLARE answers LONGTEXT CHARACTER SET ascii;
    SELECT JSON_ARRAYAGG(JSON_OBJECT(
               'id', p.id, 'token', p.token, 'outcome', 'failed', 'kind', 'lost', 'permanent', 0,
               'message', 'the lease was over and its worker had not been heard of'))
      INTO said
      FROM (SELECT STRAIGHT_JOIN j.id, j.token
              FROM (SELECT l.id
                      FROM jobs l FORCE INDEX (jobs_held)
                     WHERE l.token IS NOT NULL
                       AND l.lease_until < now
                     ORDER BY l.id
                     LIMIT most) AS l
              JOIN jobs j FORCE INDEX (PRIMARY) ON j.id = l.id
             WHERE j.lease_until < now
             LIMIT 1000000
               FOR UPDATE SKIP LOCKED) AS p;
    SET rescued = 0, buried = 0;
    IF said IS NOT NULL THEN
        CALL jobs__settle(said, now, answers);
        SELECT COALESCE(SUM(a.state = 'scheduled'), 0), COALESCE(SUM(a.state <> 'scheduled'), 0) INTO rescued, buried
          FROM JSON_TABLE(answers, '$[*]' COLUMNS (state VARCHAR(9) CHARACTER SET ascii PATH '$.state')) AS a;
    END IF;
END//

-- Free slots whose job does not run under their token.
DROP PROCEDURE IF EXISTS jobs__free_slots//
CREATE PROCEDURE jobs__free_slots(most INT, OUT freed INT)
SQL SECURITY DEFINER
BEGIN
    DECLARE slots LONGTEXT CHARACTER SET ascii;
    SELECT JSON_ARRAYAGG(JSON_OBJECT('bucket', HEX(p.bucket), 'slot', p.slot)), COUNT(*) INTO slots, freed
      FROM (SELECT STRAIGHT_JOIN s.bucket, s.slot
              FROM (SELECT i.bucket, i.slot, i.token
                      FROM jobs_slots i
                      LEFT JOIN jobs j FORCE INDEX (PRIMARY) ON j.id = i.job_id
                     WHERE NOT i.token <=> j.token
                     ORDER BY i.bucket, i.slot
                     LIMIT most) AS i
              JOIN jobs_slots s FORCE INDEX (PRIMARY) ON s.bucket = i.bucket AND s.slot = i.slot AND s.token = i.token
             LIMIT 1000000
               FOR UPDATE SKIP LOCKED) AS p;
    IF freed > 0 THEN
        DELETE s
          FROM JSON_TABLE(slots, '$[*]' COLUMNS (bucket VARCHAR(4568) CHARACTER SET ascii PATH '$.bucket', slot INT PATH '$.slot')) AS p
               STRAIGHT_JOIN jobs_slots s FORCE INDEX (PRIMARY) ON s.bucket = UNHEX(p.bucket) AND s.slot = p.slot;
    END IF;
END//

DROP PROCEDURE IF EXISTS jobs__finish_batches//
CREATE PROCEDURE jobs__finish_batches(most INT, now DATETIME(6), OUT finished INT)
SQL SECURITY DEFINER
BEGIN
    DECLARE batches LONGTEXT CHARACTER SET ascii;
    DECLARE place INT DEFAULT 0;
    SELECT JSON_ARRAYAGG(p.id), COUNT(*) INTO batches, finished
      FROM (SELECT STRAIGHT_JOIN b.id
              FROM (SELECT s.id
                      FROM jobs_batches s FORCE INDEX (jobs_batches_finished)
                     WHERE s.finished_at IS NULL
                       AND s.sealed_at IS NOT NULL
                       AND s.done = s.total
                     ORDER BY s.id
                     LIMIT most) AS s
              JOIN jobs_batches b FORCE INDEX (PRIMARY) ON b.id = s.id
             WHERE b.finished_at IS NULL
               AND b.done = b.total
             LIMIT 1000000
               FOR UPDATE SKIP LOCKED) AS p;
    WHILE place < finished DO
        CALL jobs__finish_batch(JSON_UNQUOTE(JSON_EXTRACT(batches, CONCAT('$[', place, ']'))), now);
        SET place = place + 1;
    END WHILE;
END//

-- Delete the ended jobs that have been kept for as long as their definitions say: of each state and name those that ended
-- first, found by stepping over the index from name to name.
DROP PROCEDURE IF EXISTS jobs__prune_jobs//
CREATE PROCEDURE jobs__prune_jobs(most INT, now DATETIME(6), OUT pruned INT)
SQL SECURITY DEFINER
BEGIN
    DECLARE ended VARCHAR(9) CHARACTER SET ascii COLLATE ascii_bin DEFAULT '';
    DECLARE name VARCHAR(190) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;
    DECLARE keep_ms BIGINT;
    DECLARE ids, more LONGTEXT CHARACTER SET ascii DEFAULT '[]';
    DECLARE number INT;
    SET pruned = 0;
    states: LOOP
        SELECT MAX(e.ended) INTO ended
          FROM (SELECT j.ended FROM jobs j FORCE INDEX (jobs_ended) WHERE j.ended > ended ORDER BY j.ended LIMIT 1) AS e;
        IF ended IS NULL THEN
            LEAVE states;
        END IF;
        SET name = '';
        names: LOOP
            SELECT MAX(n.name) INTO name
              FROM (SELECT j.name FROM jobs j FORCE INDEX (jobs_ended) WHERE j.ended = ended AND j.name > name ORDER BY j.ended, j.name LIMIT 1) AS n;
            IF name IS NULL OR pruned >= most THEN
                LEAVE names;
            END IF;
            SELECT CASE WHEN ended = 'dead' THEN MAX(d.keep_dead_ms) ELSE COALESCE(MAX(d.keep_done_ms), 86400000) END INTO keep_ms
              FROM jobs_definitions d
             WHERE d.name = name;
            IF keep_ms IS NOT NULL THEN
                SET number = most - pruned;
                SELECT COALESCE(JSON_ARRAYAGG(p.id), '[]'), COUNT(*) INTO more, number
                  FROM (SELECT STRAIGHT_JOIN j.id
                          FROM (SELECT e.id
                                  FROM jobs e FORCE INDEX (jobs_ended)
                                 WHERE e.ended = ended
                                   AND e.name = name
                                   AND e.finished_at <= now - INTERVAL keep_ms * 1000 MICROSECOND
                                 ORDER BY e.ended, e.name, e.finished_at
                                 LIMIT number) AS e
                          JOIN jobs j FORCE INDEX (PRIMARY) ON j.id = e.id
                         WHERE j.ended = ended
                           AND j.finished_at <= now - INTERVAL keep_ms * 1000 MICROSECOND
                         LIMIT 1000000
                           FOR UPDATE SKIP LOCKED) AS p;
                IF number > 0 THEN
                    SET ids = JSON_MERGE_PRESERVE(ids, more), pruned = pruned + number;
                END IF;
            END IF;
        END LOOP;
    END LOOP;
    IF pruned > 0 THEN
        CALL jobs__remove(ids);
    END IF;
END//

-- Delete what outlived its use: finished batches after a day, workers not heard of for a day, and keys kept for ever longer than the
-- setting says, once their jobs are gone; and the keys that were let go while somebody had them locked.
DROP PROCEDURE IF EXISTS jobs__prune_rest//
CREATE PROCEDURE jobs__prune_rest(most INT, now DATETIME(6), OUT pruned INT)
SQL SECURITY DEFINER
BEGIN
    DECLARE found LONGTEXT CHARACTER SET ascii;
    DECLARE keep_ms LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;
    DECLARE number INT;
    SELECT JSON_ARRAYAGG(p.id), COUNT(*) INTO found, pruned
      FROM (SELECT STRAIGHT_JOIN b.id
              FROM (SELECT f.id
                      FROM jobs_batches f FORCE INDEX (jobs_batches_finished)
                     WHERE f.finished_at <= now - INTERVAL 1 DAY
                     ORDER BY f.finished_at
                     LIMIT most) AS f
              JOIN jobs_batches b FORCE INDEX (PRIMARY) ON b.id = f.id
             LIMIT 1000000
               FOR UPDATE SKIP LOCKED) AS p;
    IF pruned > 0 THEN
        DELETE b
          FROM JSON_TABLE(found, '$[*]' COLUMNS (id CHAR(36) CHARACTER SET ascii PATH '$')) AS p
               STRAIGHT_JOIN jobs_batches b FORCE INDEX (PRIMARY) ON b.id = p.id;
    END IF;

    SELECT JSON_ARRAYAGG(HEX(p.id)), COUNT(*) INTO found, number
      FROM (SELECT STRAIGHT_JOIN w.id
              FROM (SELECT g.id FROM jobs_workers g WHERE g.live_until <= now - INTERVAL 1 DAY LIMIT most) AS g
              JOIN jobs_workers w FORCE INDEX (PRIMARY) ON w.id = g.id
             WHERE w.live_until <= now - INTERVAL 1 DAY
             LIMIT 1000000
               FOR UPDATE SKIP LOCKED) AS p;
    IF number > 0 THEN
        DELETE w
          FROM JSON_TABLE(found, '$[*]' COLUMNS (id VARCHAR(1520) CHARACTER SET ascii PATH '$')) AS p
               STRAIGHT_JOIN jobs_workers w FORCE INDEX (PRIMARY) ON w.id = CONVERT(UNHEX(p.id) USING utf8mb4);
        SET pruned = pruned + number;
    END IF;

    CALL jobs__setting('keep_keys_ms', keep_ms);
    IF keep_ms IS NOT NULL THEN
        SELECT JSON_ARRAYAGG(HEX(p.key)), COUNT(*) INTO found, number
          FROM (SELECT STRAIGHT_JOIN k.key
                  FROM (SELECT o.key
                          FROM jobs_keys o FORCE INDEX (jobs_keys_since)
                          LEFT JOIN jobs j FORCE INDEX (PRIMARY) ON j.id = o.job_id
                         WHERE o.kept = 'ever'
                           AND o.since <= now - INTERVAL CAST(keep_ms AS SIGNED) * 1000 MICROSECOND
                           AND j.id IS NULL
                         ORDER BY o.kept, o.since
                         LIMIT most) AS o
                  JOIN jobs_keys k FORCE INDEX (PRIMARY) ON k.key = o.key
                 LIMIT 1000000
                   FOR UPDATE SKIP LOCKED) AS p;
        IF number > 0 THEN
            DELETE k
              FROM JSON_TABLE(found, '$[*]' COLUMNS (code VARCHAR(2048) CHARACTER SET ascii PATH '$')) AS p
                   STRAIGHT_JOIN jobs_keys k FORCE INDEX (PRIMARY) ON k.key = UNHEX(p.code);
            SET pruned = pruned + number;
        END IF;
    END IF;
    CALL jobs__prune_loose_keys(most);
END//

-- Take the keys away that were let go while a producer had them locked, where nobody has them now.
DROP PROCEDURE IF EXISTS jobs__prune_loose_keys//
CREATE PROCEDURE jobs__prune_loose_keys(most INT)
SQL SECURITY DEFINER
BEGIN
    DECLARE found LONGTEXT CHARACTER SET ascii;
    SELECT JSON_ARRAYAGG(HEX(p.key)) INTO found
      FROM (SELECT STRAIGHT_JOIN k.key
              FROM (SELECT o.key, o.job_id FROM jobs__loose_keys o ORDER BY o.key LIMIT most) AS o
              JOIN jobs_keys k FORCE INDEX (PRIMARY) ON k.key = o.key AND k.job_id = o.job_id
             LIMIT 1000000
               FOR UPDATE SKIP LOCKED) AS p;
    IF found IS NOT NULL THEN
        DELETE k
          FROM JSON_TABLE(found, '$[*]' COLUMNS (code VARCHAR(2048) CHARACTER SET ascii PATH '$')) AS p
               STRAIGHT_JOIN jobs_keys k FORCE INDEX (PRIMARY) ON k.key = UNHEX(p.code);
    END IF;

    SELECT JSON_ARRAYAGG(HEX(p.key)) INTO found
      FROM (SELECT STRAIGHT_JOIN l.key
              FROM (SELECT o.key
                      FROM jobs__loose_keys o
                      LEFT JOIN jobs_keys k FORCE INDEX (PRIMARY) ON k.key = o.key AND k.job_id = o.job_id
                     WHERE k.key IS NULL
                     ORDER BY o.key
                     LIMIT most) AS o
              JOIN jobs__loose_keys l FORCE INDEX (PRIMARY) ON l.key = o.key
             LIMIT 1000000
               FOR UPDATE SKIP LOCKED) AS p;
    IF found IS NOT NULL THEN
        DELETE l
          FROM JSON_TABLE(found, '$[*]' COLUMNS (code VARCHAR(2048) CHARACTER SET ascii PATH '$')) AS p
               STRAIGHT_JOIN jobs__loose_keys l FORCE INDEX (PRIMARY) ON l.key = UNHEX(p.code);
    END IF;
END//

DROP PROCEDURE IF EXISTS jobs_sweep//
CREATE PROCEDURE jobs_sweep(options LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin)
SQL SECURITY DEFINER
BEGIN
    DECLARE settings VARCHAR(30) CHARACTER SET ascii;
    DECLARE members LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;
    DECLARE most, promoted, rescued, buried, slots_freed, batches_finished, pruned, pruned_rest INT;
    DECLARE now DATETIME(6);
    CALL jobs__members(options, 'options', 'limit', members);
    CALL jobs__integer(members, 'limit', '', 1, 100000, most);
    SET most = COALESCE(most, 1000);

    SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
    START TRANSACTION;
    BEGIN
        DECLARE EXIT HANDLER FOR SQLEXCEPTION
        BEGIN
            ROLLBACK;
            CALL jobs__put_back(settings);
            RESIGNAL;
        END;
        CALL jobs__set_aside(settings);
        SELECT c.now INTO now FROM jobs_clock c;
        CALL jobs__promote(most, now, promoted);
        CALL jobs__rescue(most, now, rescued, buried);
        CALL jobs__free_slots(most, slots_freed);
        CALL jobs__finish_batches(most, now, batches_finished);
        CALL jobs__prune_jobs(most, now, pruned);
        CALL jobs__prune_rest(most, now, pruned_rest);
        COMMIT;
        CALL jobs__put_back(settings);
    END;
    SELECT promoted, rescued, buried, slots_freed, batches_finished, pruned + pruned_rest AS pruned;
END//
