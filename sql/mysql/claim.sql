-- jobs_claim: takes due work, in order, up to max_jobs.
--
-- Why no job is taken twice: rows are locked with SKIP LOCKED and tested again under the lock; whoever is second either
-- skips the row or finds it running. Why a repeat takes nothing more: calls with one token queue up behind a lock made
-- of it, and a token that holds rows is answered those.
--
-- Why the cost does not grow: each statement below reads from the head of an index behind whose `stage` stands only what is
-- claimable, or makes one probe for each lane (queue and name) or bucket it steps over. The index is named, so that
-- no statistics can make another plan look better. A claim that finds nothing makes a handful of probes and writes nothing.
--
-- Locks: rows of jobs are never waited for. What to take is read without locking, and then locked by its id alone: nobody
-- holds an entry of a secondary index whose row somebody else has, so that claims, settles and sweeps do not deadlock
-- with one another. Slots are inserted upwards by (bucket, slot), so that two claims that meet in a bucket wait in one direction only.
--
-- Jobs are handed on between the steps as JSON arrays of ids; queues and names as arrays of their bytes in hexadecimal, in
-- which a name is found by its text whatever characters it holds.

DELIMITER //

-- Make due work claimable, the longest due first. Rows locked elsewhere are left for the next one who comes along.
DROP PROCEDURE IF EXISTS jobs__promote//
CREATE PROCEDURE jobs__promote(most INT, now DATETIME(6), OUT promoted INT)
SQL SECURITY DEFINER
BEGIN
    DECLARE due LONGTEXT CHARACTER SET ascii;
    DECLARE reach INT DEFAULT most;
    SELECT COUNT(*) INTO promoted FROM (SELECT j.id FROM jobs j FORCE INDEX (jobs_due) WHERE j.due_at <= now LIMIT 1) AS d;
    IF promoted > 0 THEN
        REPEAT  -- further on where all of these are in somebody's hands
            SELECT JSON_ARRAYAGG(p.id), COUNT(*) INTO due, promoted
              FROM (SELECT STRAIGHT_JOIN j.id
                      FROM (SELECT d.id
                              FROM jobs d FORCE INDEX (jobs_due)
                             WHERE d.due_at <= now
                             ORDER BY d.due_at, d.id
                             LIMIT reach) AS d
                      JOIN jobs j FORCE INDEX (PRIMARY) ON j.id = d.id
                     WHERE j.due_at <= now
                     LIMIT most
                       FOR UPDATE SKIP LOCKED) AS p;
            SET reach = 10 * reach;
        UNTIL promoted > 0 OR reach > 100 * most END REPEAT;
        UPDATE JSON_TABLE(due, '$[*]' COLUMNS (id CHAR(36) CHARACTER SET ascii PATH '$')) AS p
               STRAIGHT_JOIN jobs j FORCE INDEX (PRIMARY) ON j.id = p.id
           SET j.state = 'pending';
    END IF;
END//

-- Steps to the next lane in which such work waits and which is wanted: one probe for each lane there is. It begins behind the lane
-- ('', ''), which there cannot be, and ends with a queue that is NULL.
DROP PROCEDURE IF EXISTS jobs__next_lane//
CREATE PROCEDURE jobs__next_lane(
    kind VARCHAR(7) CHARACTER SET ascii COLLATE ascii_bin,
    queues LONGTEXT CHARACTER SET ascii, name_list LONGTEXT CHARACTER SET ascii, paused LONGTEXT CHARACTER SET ascii,
    INOUT queue VARCHAR(190) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin, INOUT name VARCHAR(190) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin)
SQL SECURITY DEFINER
BEGIN
    DECLARE wanted BOOLEAN DEFAULT TRUE;
    step: LOOP
        IF wanted THEN
            SELECT MAX(n.name) INTO name
              FROM (SELECT j.name
                      FROM jobs j FORCE INDEX (jobs_lanes)
                     WHERE j.stage = kind
                       AND j.queue = queue
                       AND j.name > name
                     ORDER BY j.stage, j.queue, j.name
                     LIMIT 1) AS n;
        END IF;
        IF name IS NULL OR NOT wanted THEN
            SELECT MAX(n.queue) INTO queue
              FROM (SELECT j.queue
                      FROM jobs j FORCE INDEX (jobs_lanes)
                     WHERE j.stage = kind
                       AND j.queue > queue
                     ORDER BY j.stage, j.queue
                     LIMIT 1) AS n;
            IF queue IS NULL THEN
                LEAVE step;
            END IF;
            SET name = '';
            SET wanted = (queues IS NULL OR LOCATE(CONCAT('"', HEX(queue), '"'), queues) > 0)
                     AND (paused IS NULL OR LOCATE(CONCAT('"', HEX(queue), '"'), paused) = 0);
        ELSEIF name_list IS NULL OR LOCATE(CONCAT('"', HEX(name), '"'), name_list) > 0 THEN
            LEAVE step;
        END IF;
    END LOOP;
END//

-- Unlimited work, locked, where the line is headed by work that is not for this claim: of each lane that is, its head.
DROP PROCEDURE IF EXISTS jobs__pick_by_lanes//
CREATE PROCEDURE jobs__pick_by_lanes(
    queues LONGTEXT CHARACTER SET ascii, name_list LONGTEXT CHARACTER SET ascii, paused LONGTEXT CHARACTER SET ascii, most INT, reach INT,
    OUT picked LONGTEXT CHARACTER SET ascii, OUT number INT, OUT seen INT)
SQL SECURITY DEFINER
BEGIN
    DECLARE queue, name VARCHAR(190) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin DEFAULT '';
    DECLARE heads LONGTEXT CHARACTER SET ascii DEFAULT '[]';
    DECLARE more LONGTEXT CHARACTER SET ascii;
    lanes: LOOP
        CALL jobs__next_lane('line', queues, name_list, paused, queue, name);
        IF queue IS NULL THEN
            LEAVE lanes;
        END IF;
        -- A text that sorts as jobs are claimed and ends with the id.
        SELECT COALESCE(JSON_ARRAYAGG(CONCAT(LPAD(h.priority + 32768, 5, '0'), h.run_at, h.id)), '[]') INTO more
          FROM (SELECT j.priority, j.run_at, j.id
                  FROM jobs j FORCE INDEX (jobs_lanes)
                 WHERE j.stage = 'line'
                   AND j.queue = queue
                   AND j.name = name
                 ORDER BY j.stage, j.queue, j.name, j.priority, j.ring, j.run_at, j.id
                 LIMIT reach) AS h;
        SET heads = JSON_MERGE_PRESERVE(heads, more);
    END LOOP;

    SELECT JSON_ARRAYAGG(p.id), COUNT(*) INTO picked, number
      FROM (SELECT STRAIGHT_JOIN j.id
              FROM (SELECT t.place
                      FROM JSON_TABLE(heads, '$[*]' COLUMNS (place CHAR(67) CHARACTER SET ascii PATH '$')) AS t
                     ORDER BY t.place
                     LIMIT reach) AS h
              JOIN jobs j FORCE INDEX (PRIMARY) ON j.id = RIGHT(h.place, 36)
             WHERE j.stage = 'line'
             LIMIT most
               FOR UPDATE SKIP LOCKED) AS p;
    SET seen = JSON_LENGTH(heads);
END//

-- Unlimited work, locked. The head of the line serves nearly every claim; a longer look is taken where others hold the first
-- ones. Where that is full of work that is not for this one, the lanes are looked at.
DROP PROCEDURE IF EXISTS jobs__pick_unlimited//
CREATE PROCEDURE jobs__pick_unlimited(
    queues LONGTEXT CHARACTER SET ascii, name_list LONGTEXT CHARACTER SET ascii, paused LONGTEXT CHARACTER SET ascii, most INT,
    OUT picked LONGTEXT CHARACTER SET ascii, OUT number INT)
SQL SECURITY DEFINER
BEGIN
    DECLARE far INT DEFAULT GREATEST(100, 4 * most);
    DECLARE reach INT DEFAULT GREATEST(20, 2 * most);
    DECLARE seen INT;
    look: LOOP
        SELECT JSON_ARRAYAGG(p.id), COUNT(*) INTO picked, number
          FROM (SELECT STRAIGHT_JOIN j.id
                  FROM (SELECT l.id, l.queue, l.name
                          FROM jobs l FORCE INDEX (jobs_line)
                         WHERE l.stage = 'line'
                         ORDER BY l.stage, l.priority, l.run_at, l.id
                         LIMIT reach) AS w
                  JOIN jobs j FORCE INDEX (PRIMARY) ON j.id = w.id
                 WHERE (queues IS NULL OR LOCATE(CONCAT('"', HEX(w.queue), '"'), queues) > 0)
                   AND (name_list IS NULL OR LOCATE(CONCAT('"', HEX(w.name), '"'), name_list) > 0)
                   AND (paused IS NULL OR LOCATE(CONCAT('"', HEX(w.queue), '"'), paused) = 0)
                   AND j.stage = 'line'
                 LIMIT most
                   FOR UPDATE SKIP LOCKED) AS p;
        IF number = most THEN
            LEAVE look;
        END IF;
        SELECT COUNT(*) INTO seen
          FROM (SELECT l.id FROM jobs l FORCE INDEX (jobs_line) WHERE l.stage = 'line' LIMIT reach) AS w;
        IF seen < reach THEN
            LEAVE look;
        ELSEIF reach = far THEN
            REPEAT  -- further down the lanes where their heads are in somebody's hands
                SET reach = far, far = 10 * far;
                CALL jobs__pick_by_lanes(queues, name_list, paused, most, reach, picked, number, seen);
            UNTIL number > 0 OR seen < reach OR far > 1000000 END REPEAT;
            LEAVE look;
        END IF;
        SET reach = far;
    END LOOP;
END//

-- The buckets of one lane and priority that have room, from a place on the ring of buckets round to it again, until there are as many as are
-- asked for. It looks at some jobs at once, which may be of many buckets, and, where these are deep, goes on by one probe for each, however many
-- jobs wait in it. `met` names the bucket of each job that was picked before. Answered is a list of texts, in their order: for each bucket 10
-- digits of its room, 16 of its place on the ring, and the id of its first job.
DROP PROCEDURE IF EXISTS jobs__walk_ring//
CREATE PROCEDURE jobs__walk_ring(
    queue VARCHAR(190) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin, name VARCHAR(190) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin,
    level SMALLINT, origin VARBINARY(8), met LONGTEXT CHARACTER SET ascii, most INT, OUT roomy LONGTEXT CHARACTER SET ascii, OUT number INT)
SQL SECURITY DEFINER
BEGIN
    DECLARE place VARBINARY(8) DEFAULT origin;
    DECLARE border VARBINARY(8) DEFAULT X'FFFFFFFFFFFFFFFF';
    DECLARE last VARBINARY(8);
    DECLARE more LONGTEXT CHARACTER SET ascii;
    DECLARE reach INT DEFAULT LEAST(2 * most, 500);
    DECLARE found, seen, buckets INT;
    SET roomy = '', number = 0;
    walk: LOOP
        SELECT JSON_ARRAYAGG(CASE WHEN b.room > 0 THEN CONCAT(LPAD(b.room, 10, '0'), HEX(b.ring), b.id) END), SUM(b.room > 0), MAX(b.ring), SUM(b.seen), COUNT(*)
          INTO more, found, last, seen, buckets
          FROM (SELECT STRAIGHT_JOIN h.ring, j.id, h.seen,
                       g.slots - (SELECT COUNT(*) FROM jobs_slots s WHERE s.bucket = j.bucket)
                               - CASE WHEN met = '' THEN 0 ELSE (LENGTH(met) - LENGTH(REPLACE(met, CONCAT(',', HEX(h.ring)), ''))) DIV 17 END AS room
                  FROM (SELECT r.ring, MIN(CONCAT(r.run_at, r.id)) AS head, COUNT(*) AS seen
                          FROM (SELECT w.ring, w.run_at, w.id
                                  FROM jobs w FORCE INDEX (jobs_lanes)
                                 WHERE w.stage = 'limited'
                                   AND w.queue = queue
                                   AND w.name = name
                                   AND w.priority = level
                                   AND w.ring > place
                                   AND w.ring <= border
                                 ORDER BY w.stage, w.queue, w.name, w.priority, w.ring, w.run_at, w.id
                                 LIMIT reach) AS r
                         GROUP BY r.ring
                         ORDER BY r.ring
                         LIMIT 1000000) AS h
                  JOIN jobs j FORCE INDEX (PRIMARY) ON j.id = RIGHT(h.head, 36)
                  LEFT JOIN jobs_groups g ON g.name = CONVERT(SUBSTRING_INDEX(j.bucket, ':', 1) USING utf8mb4)
                 LIMIT 1000000) AS b;
        IF found > 0 THEN
            SET roomy = CONCAT(roomy, ',', SUBSTRING(more, 2, LENGTH(more) - 2)), number = number + found;
        END IF;
        IF number >= most THEN
            LEAVE walk;
        ELSEIF seen = reach THEN
            SET place = last, reach = CASE WHEN seen <= 16 * buckets THEN LEAST(2 * reach, 500) ELSE 1 END;
        ELSEIF border = origin THEN
            LEAVE walk;
        ELSE
            SET place = '', border = origin;
        END IF;
    END LOOP;
    SET roomy = CONCAT('[', SUBSTRING(roomy, 2), ']');
END//

-- Limited work, locked: of each bucket that is given as above its first job, as many as are asked for. Answered are the ids with the room of the
-- bucket behind each; the places on the ring are appended to `met`.
DROP PROCEDURE IF EXISTS jobs__pick_heads//
CREATE PROCEDURE jobs__pick_heads(
    roomy LONGTEXT CHARACTER SET ascii, most INT, OUT picks LONGTEXT CHARACTER SET ascii, INOUT met LONGTEXT CHARACTER SET ascii, OUT number INT)
SQL SECURITY DEFINER
BEGIN
    DECLARE places LONGTEXT CHARACTER SET ascii;
    SELECT COALESCE(JSON_ARRAYAGG(CONCAT(p.id, p.room)), '[]'), COALESCE(JSON_ARRAYAGG(CONCAT(',', p.place)), ''), COUNT(*) INTO picks, places, number
      FROM (SELECT STRAIGHT_JOIN j.id, CAST(LEFT(h.head, 10) AS UNSIGNED) AS room, SUBSTRING(h.head, 11, 16) AS place
              FROM (SELECT t.head
                      FROM JSON_TABLE(roomy, '$[*]' COLUMNS (head CHAR(62) CHARACTER SET ascii PATH '$')) AS t
                     LIMIT 1000000) AS h
              JOIN jobs j FORCE INDEX (PRIMARY) ON j.id = RIGHT(h.head, 36)
             WHERE j.stage = 'limited'
               AND j.ring = UNHEX(SUBSTRING(h.head, 11, 16))
             LIMIT most
               FOR UPDATE SKIP LOCKED) AS p;
    SET met = CONCAT(met, places);
END//

-- The same of one bucket, as many as are asked for, but its first job, and stepping over those that are in somebody's hands.
DROP PROCEDURE IF EXISTS jobs__pick_of_bucket//
CREATE PROCEDURE jobs__pick_of_bucket(
    queue VARCHAR(190) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin, name VARCHAR(190) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin,
    level SMALLINT, place BINARY(8), head CHAR(36) CHARACTER SET ascii COLLATE ascii_bin, room INT, most INT,
    OUT picks LONGTEXT CHARACTER SET ascii, INOUT met LONGTEXT CHARACTER SET ascii, OUT number INT)
SQL SECURITY DEFINER
BEGIN
    DECLARE reach INT DEFAULT 4 * most + 4;
    SELECT COALESCE(JSON_ARRAYAGG(CONCAT(p.id, room)), '[]'), COUNT(*) INTO picks, number
      FROM (SELECT STRAIGHT_JOIN j.id
              FROM (SELECT h.id
                      FROM jobs h FORCE INDEX (jobs_lanes)
                     WHERE h.stage = 'limited'
                       AND h.queue = queue
                       AND h.name = name
                       AND h.priority = level
                       AND h.ring = place
                     ORDER BY h.stage, h.queue, h.name, h.priority, h.ring, h.run_at, h.id
                     LIMIT reach) AS h
              JOIN jobs j FORCE INDEX (PRIMARY) ON j.id = h.id
             WHERE j.stage = 'limited'
               AND j.ring = place
               AND j.id <> head
             LIMIT most
               FOR UPDATE SKIP LOCKED) AS p;
    SET met = CONCAT(met, REPEAT(CONCAT(',', HEX(place)), number));
END//

-- Limited work of one lane, locked: by priority, and within one a job of each bucket that has room before more of any. Appended to
-- `picks` is the id of each with the room of its bucket behind it.
DROP PROCEDURE IF EXISTS jobs__pick_of_lane//
CREATE PROCEDURE jobs__pick_of_lane(
    queue VARCHAR(190) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin, name VARCHAR(190) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin,
    origin VARBINARY(8), most INT, INOUT picks LONGTEXT CHARACTER SET ascii)
SQL SECURITY DEFINER
BEGIN
    DECLARE level SMALLINT;
    DECLARE met, roomy, got, more LONGTEXT CHARACTER SET ascii DEFAULT '';
    DECLARE head CHAR(36) CHARACTER SET ascii COLLATE ascii_bin;
    DECLARE place BINARY(8);
    DECLARE room, share, wanted, number INT;
    SELECT MAX(f.priority) INTO level
      FROM (SELECT j.priority
              FROM jobs j FORCE INDEX (jobs_lanes)
             WHERE j.stage = 'limited'
               AND j.queue = queue
               AND j.name = name
             ORDER BY j.stage, j.queue, j.name, j.priority
             LIMIT 1) AS f;
    WHILE level IS NOT NULL AND most > 0 DO
        CALL jobs__walk_ring(queue, name, level, origin, met, most, roomy, number);
        SET share = GREATEST(1, most - number + 1);  -- each of the other buckets gives one at least
        IF number > 0 THEN
            CALL jobs__pick_heads(roomy, most, got, met, number);
            SET picks = JSON_MERGE_PRESERVE(picks, got), most = most - number;
        END IF;
        WHILE most > 0 AND LOCATE('"', roomy) > 0 DO
            SET roomy = SUBSTRING(roomy, LOCATE('"', roomy) + 1);
            SET room = LEFT(roomy, 10), place = UNHEX(SUBSTRING(roomy, 11, 16)), head = SUBSTRING(roomy, 27, 36);
            SET wanted = LEAST(room, share) - (LOCATE(head, got) > 0), roomy = SUBSTRING(roomy, 64);
            IF wanted > 0 THEN
                CALL jobs__pick_of_bucket(queue, name, level, place, head, room, LEAST(wanted, most), more, met, number);
                SET picks = JSON_MERGE_PRESERVE(picks, more), most = most - number;
            END IF;
        END WHILE;
        SELECT MAX(f.priority) INTO level
          FROM (SELECT j.priority
                  FROM jobs j FORCE INDEX (jobs_lanes)
                 WHERE j.stage = 'limited'
                   AND j.queue = queue
                   AND j.name = name
                   AND j.priority > level
                 ORDER BY j.stage, j.queue, j.name, j.priority
                 LIMIT 1) AS f;
    END WHILE;
END//

-- Limited work, locked: by priority, and within one priority a job of each bucket before a second one of any. The session remembers in
-- @jobs_turns how far it has got on the ring of each lane, and goes on from there; a new one starts at a random place.
DROP PROCEDURE IF EXISTS jobs__pick_limited//
CREATE PROCEDURE jobs__pick_limited(
    queues LONGTEXT CHARACTER SET ascii, name_list LONGTEXT CHARACTER SET ascii, paused LONGTEXT CHARACTER SET ascii, most INT,
    OUT picked LONGTEXT CHARACTER SET ascii, OUT number INT)
SQL SECURITY DEFINER
BEGIN
    DECLARE queue, name VARCHAR(190) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin DEFAULT '';
    DECLARE turns LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin DEFAULT COALESCE(@jobs_turns, '{}');
    DECLARE lane, last_lane VARCHAR(70) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;
    DECLARE origin, last_origin VARBINARY(8);
    DECLARE picks LONGTEXT CHARACTER SET ascii DEFAULT '[]';
    DECLARE place CHAR(16) CHARACTER SET ascii;
    DECLARE size, lanes INT DEFAULT 0;
    SET number = 0;
    CALL jobs__next_lane('limited', queues, name_list, paused, queue, name);
    WHILE queue IS NOT NULL DO
        SET lane = CONCAT('$.l', SHA2(CONCAT(queue, CHAR(0), name), 256));
        SET origin = UNHEX(JSON_UNQUOTE(JSON_EXTRACT(turns, lane)));
        IF origin IS NULL THEN
            SET origin = LEFT(UNHEX(SHA2(RAND(), 256)), 8), turns = JSON_SET(turns, lane, HEX(origin));
        END IF;
        SET size = LENGTH(picks);
        CALL jobs__pick_of_lane(queue, name, origin, most, picks);
        IF LENGTH(picks) > size THEN
            SET lanes = lanes + 1, last_lane = lane, last_origin = origin;
        END IF;
        CALL jobs__next_lane('limited', queues, name_list, paused, queue, name);
    END WHILE;
    IF lanes = 1 THEN  -- then they are no more than was asked for, nor than there is room for
        SELECT JSON_ARRAYAGG(j.id), COUNT(*), SUBSTRING(MAX(CONCAT(j.ring <= last_origin, HEX(j.ring))), 2) INTO picked, number, place
          FROM JSON_TABLE(picks, '$[*]' COLUMNS (pick VARCHAR(46) CHARACTER SET ascii PATH '$')) AS p
               STRAIGHT_JOIN jobs j FORCE INDEX (PRIMARY) ON j.id = LEFT(p.pick, 36);
        SET @jobs_turns = JSON_SET(turns, last_lane, place);
    ELSEIF lanes > 1 THEN
        SELECT JSON_ARRAYAGG(c.id), COUNT(*) INTO picked, number
          FROM (SELECT r.id
                  FROM (SELECT STRAIGHT_JOIN j.id, j.priority, j.run_at,
                               MAX(CAST(SUBSTRING(p.pick, 37) AS SIGNED)) OVER (PARTITION BY j.ring) AS room,
                               ROW_NUMBER() OVER (PARTITION BY j.ring ORDER BY j.priority, j.run_at, j.id) AS turn
                          FROM JSON_TABLE(picks, '$[*]' COLUMNS (pick VARCHAR(46) CHARACTER SET ascii PATH '$')) AS p
                          JOIN jobs j FORCE INDEX (PRIMARY) ON j.id = LEFT(p.pick, 36)) AS r
                 WHERE r.turn <= r.room
                 ORDER BY r.priority, r.turn, r.run_at, r.id
                 LIMIT most) AS c;
        -- In each lane the bucket that came last on the way round.
        SELECT JSON_MERGE_PATCH(turns, JSON_OBJECTAGG(t.lane, t.place)) INTO turns
          FROM (SELECT l.lane, SUBSTRING(MAX(CONCAT(HEX(l.ring) <= COALESCE(JSON_UNQUOTE(JSON_EXTRACT(turns, CONCAT('$.', l.lane))), ''), HEX(l.ring))), 2) AS place
                  FROM (SELECT STRAIGHT_JOIN j.ring, CONCAT('l', SHA2(CONCAT(j.queue, CHAR(0), j.name), 256)) AS lane
                          FROM JSON_TABLE(picked, '$[*]' COLUMNS (id CHAR(36) CHARACTER SET ascii PATH '$')) AS p
                          JOIN jobs j FORCE INDEX (PRIMARY) ON j.id = p.id) AS l
                 GROUP BY l.lane) AS t;
        SET @jobs_turns = turns;
    END IF;
END//

-- Of locked rows those that stand in another bucket than their definition says, having been enqueued by one who did not
-- see it yet: they are given the right one, and answered; NULL where there is none.
DROP PROCEDURE IF EXISTS jobs__put_right//
CREATE PROCEDURE jobs__put_right(picked LONGTEXT CHARACTER SET ascii, OUT misplaced LONGTEXT CHARACTER SET ascii)
SQL SECURITY DEFINER
BEGIN
    DECLARE bound, member VARCHAR(190) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;
    DECLARE job CHAR(36) CHARACTER SET ascii COLLATE ascii_bin;
    DECLARE args LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;
    DECLARE found, right_one VARBINARY(2284);
    DECLARE suspects LONGTEXT CHARACTER SET ascii;
    DECLARE place INT DEFAULT 0;

    -- A bucket that is the group and the value as the engine reads it is right. Where it reads it otherwise (1e2, half a surrogate pair)
    -- the job is looked at more closely.
    SELECT JSON_ARRAYAGG(j.id) INTO suspects
      FROM JSON_TABLE(picked, '$[*]' COLUMNS (id CHAR(36) CHARACTER SET ascii PATH '$')) AS p
           STRAIGHT_JOIN jobs j FORCE INDEX (PRIMARY) ON j.id = p.id
           STRAIGHT_JOIN jobs_definitions d ON d.name = j.name
     WHERE CASE WHEN d.concurrency_group IS NULL THEN j.bucket IS NOT NULL
                WHEN j.bucket IS NULL THEN TRUE
                WHEN d.concurrency_key IS NULL THEN j.bucket <> CAST(d.concurrency_group AS BINARY)
                WHEN NOT JSON_VALID(j.args) THEN TRUE
                ELSE j.bucket <> CAST(CONCAT(d.concurrency_group, ':', COALESCE(JSON_UNQUOTE(JSON_EXTRACT(
                         j.args, CONCAT('$."', REPLACE(REPLACE(REPLACE(d.concurrency_key, '\\', '\\\\'), '"', '\\"'), '.', '"."'), '"'))), 'null')) AS BINARY)
           END;

    WHILE place < COALESCE(JSON_LENGTH(suspects), 0) DO
        SET job = JSON_UNQUOTE(JSON_EXTRACT(suspects, CONCAT('$[', place, ']'))), place = place + 1;
        SELECT d.concurrency_group, d.concurrency_key, j.args, j.bucket INTO bound, member, args, found
          FROM jobs j
          JOIN jobs_definitions d ON d.name = j.name
         WHERE j.id = job;
        CALL jobs__bucket(bound, member, args, right_one);
        IF NOT found <=> right_one THEN
            UPDATE jobs j SET j.bucket = right_one WHERE j.id = job;
            SET misplaced = JSON_ARRAY_APPEND(COALESCE(misplaced, '[]'), '$', job);
        END IF;
    END WHILE;
END//

-- The given jobs in the order of claiming, as many as there may be.
DROP PROCEDURE IF EXISTS jobs__in_order//
CREATE PROCEDURE jobs__in_order(INOUT ids LONGTEXT CHARACTER SET ascii, most INT)
SQL SECURITY DEFINER
BEGIN
    SELECT JSON_ARRAYAGG(o.id) INTO ids
      FROM (SELECT j.id
              FROM JSON_TABLE(ids, '$[*]' COLUMNS (id CHAR(36) CHARACTER SET ascii PATH '$')) AS p
                   STRAIGHT_JOIN jobs j FORCE INDEX (PRIMARY) ON j.id = p.id
             ORDER BY j.priority, j.run_at, j.id
             LIMIT most) AS o;
END//

-- Give the limited ones among the given jobs their slots where a bucket has one in all, and nobody has it: all at once, upwards.
DROP PROCEDURE IF EXISTS jobs__take_single_slots//
CREATE PROCEDURE jobs__take_single_slots(ids LONGTEXT CHARACTER SET ascii, token CHAR(36) CHARACTER SET ascii COLLATE ascii_bin, now DATETIME(6))
SQL SECURITY DEFINER
BEGIN
    DECLARE single LONGTEXT CHARACTER SET ascii;
    SELECT JSON_ARRAYAGG(j.id) INTO single
      FROM JSON_TABLE(ids, '$[*]' COLUMNS (id CHAR(36) CHARACTER SET ascii PATH '$')) AS p
           STRAIGHT_JOIN jobs j FORCE INDEX (PRIMARY) ON j.id = p.id
           STRAIGHT_JOIN jobs_groups g ON g.name = CONVERT(SUBSTRING_INDEX(j.bucket, ':', 1) USING utf8mb4)
     WHERE j.stage = 'limited'
       AND g.slots = 1
       AND NOT EXISTS (SELECT 1 FROM jobs_slots s WHERE s.bucket = j.bucket);
    IF single IS NOT NULL THEN
        INSERT INTO jobs_slots (bucket, slot, job_id, token, taken_at)
        SELECT j.bucket, 0, j.id, token, now
          FROM JSON_TABLE(single, '$[*]' COLUMNS (id CHAR(36) CHARACTER SET ascii PATH '$')) AS p
               STRAIGHT_JOIN jobs j FORCE INDEX (PRIMARY) ON j.id = p.id
         ORDER BY j.bucket, j.priority, j.run_at, j.id
            ON DUPLICATE KEY UPDATE taken_at = jobs_slots.taken_at;
    END IF;
END//

-- Of the given jobs those that are limited and got a slot for this token.
DROP PROCEDURE IF EXISTS jobs__take_slots//
CREATE PROCEDURE jobs__take_slots(
    ids LONGTEXT CHARACTER SET ascii, token CHAR(36) CHARACTER SET ascii COLLATE ascii_bin, now DATETIME(6), OUT served LONGTEXT CHARACTER SET ascii)
SQL SECURITY DEFINER
BEGIN
    DECLARE job CHAR(36) CHARACTER SET ascii COLLATE ascii_bin;
    DECLARE bucket, former VARBINARY(2284);
    DECLARE slot, invalid INT;
    DECLARE ended BOOLEAN DEFAULT FALSE;
    DECLARE waiting CURSOR FOR
        SELECT j.id, j.bucket
          FROM JSON_TABLE(ids, '$[*]' COLUMNS (id CHAR(36) CHARACTER SET ascii PATH '$')) AS p
               STRAIGHT_JOIN jobs j FORCE INDEX (PRIMARY) ON j.id = p.id
               STRAIGHT_JOIN jobs_groups g ON g.name = CONVERT(SUBSTRING_INDEX(j.bucket, ':', 1) USING utf8mb4)
         WHERE j.stage = 'limited'
           AND g.slots > 1
         ORDER BY j.bucket, j.priority, j.run_at, j.id;
    DECLARE CONTINUE HANDLER FOR NOT FOUND SET ended = TRUE;

    -- The jobs are pending: a slot that stands in their names is not valid.
    SELECT COUNT(*) INTO invalid
      FROM JSON_TABLE(ids, '$[*]' COLUMNS (id CHAR(36) CHARACTER SET ascii PATH '$')) AS p
           STRAIGHT_JOIN jobs_slots s FORCE INDEX (jobs_slots_job) ON s.job_id = p.id;
    IF invalid > 0 THEN
        DELETE s
          FROM JSON_TABLE(ids, '$[*]' COLUMNS (id CHAR(36) CHARACTER SET ascii PATH '$')) AS p
               STRAIGHT_JOIN jobs_slots s FORCE INDEX (jobs_slots_job) ON s.job_id = p.id;
    END IF;

    CALL jobs__take_single_slots(ids, token, now);
    OPEN waiting;
    serve: LOOP
        SET ended = FALSE;
        FETCH waiting INTO job, bucket;
        IF ended THEN
            LEAVE serve;
        END IF;
        IF NOT bucket <=> former THEN
            SET former = bucket, slot = -1;
        END IF;
        IF slot IS NOT NULL THEN  -- otherwise the bucket has no more
            CALL jobs__take_slot(bucket, job, token, slot, now, slot);
        END IF;
    END LOOP;
    CLOSE waiting;

    SELECT COALESCE(JSON_ARRAYAGG(p.id), '[]') INTO served
      FROM JSON_TABLE(ids, '$[*]' COLUMNS (id CHAR(36) CHARACTER SET ascii PATH '$')) AS p
           STRAIGHT_JOIN jobs_slots s FORCE INDEX (jobs_slots_job) ON s.job_id = p.id
     WHERE s.token = token;
END//

-- Turn the next jobs to running under this token. A token that holds jobs takes no more.
DROP PROCEDURE IF EXISTS jobs__claim//
CREATE PROCEDURE jobs__claim(
    worker VARCHAR(190) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin, token CHAR(36) CHARACTER SET ascii COLLATE ascii_bin,
    queues LONGTEXT CHARACTER SET ascii, name_list LONGTEXT CHARACTER SET ascii, most INT, lease_ms BIGINT)
SQL SECURITY DEFINER
claim: BEGIN
    DECLARE now DATETIME(6);
    DECLARE paused, unlimited, limited, picked, misplaced LONGTEXT CHARACTER SET ascii;
    DECLARE held, due, pauses, bounds, number, number_limited INT;

    -- One look at all that may be: most of it is not, and then costs no step of its own.
    SELECT c.now,
           (SELECT COUNT(*) FROM jobs j FORCE INDEX (jobs_held) WHERE j.token = token),
           COALESCE((SELECT MIN(j.due_at) FROM jobs j) <= c.now, FALSE),
           EXISTS (SELECT 1 FROM jobs_paused p),
           EXISTS (SELECT 1 FROM jobs j FORCE INDEX (jobs_lanes) WHERE j.stage = 'limited'),
           EXISTS (SELECT 1 FROM jobs_definitions d FORCE INDEX (jobs_definitions_group) WHERE d.concurrency_group IS NOT NULL)
      INTO now, held, due, pauses, number_limited, bounds
      FROM jobs_clock c;
    IF held > 0 THEN
        LEAVE claim;
    END IF;
    IF due THEN
        CALL jobs__promote(GREATEST(100, 2 * most), now, number);
        SET number_limited = 1;  -- what was promoted may be limited
    END IF;
    IF pauses THEN
        SELECT JSON_ARRAYAGG(HEX(p.queue)) INTO paused FROM jobs_paused p;
    END IF;
    CALL jobs__pick_unlimited(queues, name_list, paused, most, unlimited, number);
    IF number_limited > 0 THEN
        CALL jobs__pick_limited(queues, name_list, paused, most, limited, number_limited);
    END IF;
    IF number + number_limited = 0 THEN
        LEAVE claim;
    END IF;

    SET picked = CASE WHEN number_limited = 0 THEN unlimited ELSE JSON_MERGE_PRESERVE(COALESCE(unlimited, '[]'), limited) END;
    IF bounds + number_limited > 0 THEN
        CALL jobs__put_right(picked, misplaced);
    END IF;
    IF misplaced IS NOT NULL THEN
        SELECT JSON_ARRAYAGG(p.id), JSON_ARRAYAGG(CASE WHEN LOCATE(p.id, COALESCE(unlimited, '')) > 0 THEN p.id END) INTO picked, unlimited
          FROM JSON_TABLE(picked, '$[*]' COLUMNS (id CHAR(36) CHARACTER SET ascii PATH '$')) AS p
         WHERE LOCATE(p.id, misplaced) = 0;
    END IF;
    IF number_limited > 0 THEN
        CALL jobs__in_order(picked, most);
        CALL jobs__take_slots(picked, token, now, limited);
        SET picked = JSON_MERGE_PRESERVE(COALESCE(unlimited, '[]'), limited);
        CALL jobs__in_order(picked, most);
    END IF;

    UPDATE JSON_TABLE(picked, '$[*]' COLUMNS (id CHAR(36) CHARACTER SET ascii PATH '$')) AS p
           STRAIGHT_JOIN jobs j FORCE INDEX (PRIMARY) ON j.id = p.id
       SET j.state = 'running',
           j.token = token,
           j.worker = worker,
           j.lease_until = now + INTERVAL lease_ms * 1000 MICROSECOND,
           j.attempts = j.attempts + 1,
           j.started_at = now;
END//

-- A JSON array of texts as one of their bytes.
DROP PROCEDURE IF EXISTS jobs__in_hexadecimal//
CREATE PROCEDURE jobs__in_hexadecimal(list LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin, OUT result LONGTEXT CHARACTER SET ascii)
SQL SECURITY DEFINER
BEGIN
    DECLARE place INT DEFAULT 0;
    IF list IS NOT NULL THEN
        SET result = '';
        WHILE place < JSON_LENGTH(list) DO
            SET result = CONCAT(result, ',"', HEX(JSON_UNQUOTE(JSON_EXTRACT(list, CONCAT('$[', place, ']')))), '"'), place = place + 1;
        END WHILE;
        SET result = CONCAT('[', SUBSTRING(result, 2), ']');
    END IF;
END//

-- What a worker asks for is the same each time, and reading it costs more than claiming: the session remembers what it read last.
DROP PROCEDURE IF EXISTS jobs__read_claim//
CREATE PROCEDURE jobs__read_claim(
    options LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin,
    OUT queues LONGTEXT CHARACTER SET ascii, OUT name_list LONGTEXT CHARACTER SET ascii, OUT most INT, OUT lease_ms BIGINT)
SQL SECURITY DEFINER
BEGIN
    DECLARE members, list LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;
    IF COALESCE(options, '{}') <=> @jobs_claim_options THEN
        SET queues = @jobs_claim_queues, name_list = @jobs_claim_names, most = @jobs_claim_most, lease_ms = @jobs_claim_lease_ms;
    ELSE
        SET @jobs_claim_options = NULL;
        CALL jobs__members(options, 'options', 'queues, names, max_jobs, lease_ms', members);
        CALL jobs__texts(members, 'queues', '', list);
        CALL jobs__in_hexadecimal(list, queues);
        CALL jobs__texts(members, 'names', '', list);
        CALL jobs__in_hexadecimal(list, name_list);
        CALL jobs__integer(members, 'max_jobs', '', 1, 1000, most);
        CALL jobs__duration(members, 'lease_ms', '', 0, lease_ms);
        SET most = COALESCE(most, 1), lease_ms = COALESCE(lease_ms, 300000);
        SET @jobs_claim_queues = queues, @jobs_claim_names = name_list, @jobs_claim_most = most, @jobs_claim_lease_ms = lease_ms,
            @jobs_claim_options = COALESCE(options, '{}');
    END IF;
END//

DROP PROCEDURE IF EXISTS jobs_claim//
CREATE PROCEDURE jobs_claim(
    worker LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin, token LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin,
    options LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin)
SQL SECURITY DEFINER
BEGIN
    DECLARE settings VARCHAR(30) CHARACTER SET ascii;
    DECLARE holder CHAR(36) CHARACTER SET ascii COLLATE ascii_bin;
    DECLARE turn VARCHAR(64) CHARACTER SET utf8mb4;
    DECLARE queues, name_list LONGTEXT CHARACTER SET ascii;
    DECLARE most INT;
    DECLARE lease_ms BIGINT;
    CALL jobs__fit(COALESCE(worker, ''), 'worker');
    IF token IS NULL THEN
        CALL jobs__refuse('PJ003', 'token is missing', 'make a new UUID for each claim, and pass the same one to repeat it');
    END IF;
    CALL jobs__as_uuid(token, 'token', holder);
    CALL jobs__read_claim(options, queues, name_list, most, lease_ms);
    SET turn = CONCAT('pyjobs claim ', holder);

    SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
    START TRANSACTION;
    BEGIN
        DECLARE EXIT HANDLER FOR SQLEXCEPTION
        BEGIN
            ROLLBACK;
            DO RELEASE_LOCK(turn);
            CALL jobs__put_back(settings);
            RESIGNAL;
        END;
        CALL jobs__set_aside(settings);
        IF NOT COALESCE(GET_LOCK(turn, 10), 0) THEN
            SIGNAL SQLSTATE 'HY000' SET MYSQL_ERRNO = 1205, MESSAGE_TEXT = 'another call claims with this token';
        END IF;
        CALL jobs__claim(worker, holder, queues, name_list, most, lease_ms);
        COMMIT;
        CALL jobs__put_back(settings);
        DO RELEASE_LOCK(turn);
    END;

    -- In a transaction of its own, which a session without autocommit would leave open.
    SELECT j.id, j.name, j.queue, j.args, j.attempts AS attempt, j.max_attempts, j.timeout_ms, j.priority, j.tenant, j.batch_id, j.meta, j.unique_key,
           j.enqueued_at, j.run_at, j.token, j.lease_until
      FROM jobs j FORCE INDEX (jobs_held)
     WHERE j.token = holder
     ORDER BY j.priority, j.run_at, j.id;
    COMMIT;
END//

-- Whether there may be work for somebody, and the newest job there is: what a sleeping worker looks at.
CREATE OR REPLACE VIEW jobs__work AS
    SELECT EXISTS (SELECT 1 FROM jobs j FORCE INDEX (jobs_line) WHERE j.stage IS NOT NULL)
           OR COALESCE((SELECT MIN(j.due_at) FROM jobs j) <= (SELECT c.now FROM jobs_clock c), FALSE) AS waits,
           (SELECT MAX(j.id) FROM jobs j) AS newest
//
