-- The loop over queues, which SQL has no other word for. Five index heads: inside one level older always means better,
-- so the best rows of a queue are among the first of each level. Nobody could name a row whose id is none.
CREATE TEMP TRIGGER IF NOT EXISTS choose_best AFTER INSERT ON wanted_queue
BEGIN
    INSERT INTO chosen (job_id, now)
    SELECT h.job_id, new.now
    FROM (
        SELECT * FROM (
            SELECT 0 AS level, q.scheduled_time, q.job_id FROM ratchet.scheduler_job_queue q
            WHERE q.queue = new.queue AND q.priority = 0 AND q.status = 'PENDING' AND q.blocked_by = 0
              AND q.parked_on IS NULL AND q.scheduled_time <= new.now AND length(q.job_id) = 16
            ORDER BY q.scheduled_time, q.job_id LIMIT new.lim
        )
        UNION ALL
        SELECT * FROM (
            SELECT 1, q.scheduled_time, q.job_id FROM ratchet.scheduler_job_queue q
            WHERE q.queue = new.queue AND q.priority = 1 AND q.status = 'PENDING' AND q.blocked_by = 0
              AND q.parked_on IS NULL AND q.scheduled_time <= new.now AND length(q.job_id) = 16
            ORDER BY q.scheduled_time, q.job_id LIMIT new.lim
        )
        UNION ALL
        SELECT * FROM (
            SELECT 2, q.scheduled_time, q.job_id FROM ratchet.scheduler_job_queue q
            WHERE q.queue = new.queue AND q.priority = 2 AND q.status = 'PENDING' AND q.blocked_by = 0
              AND q.parked_on IS NULL AND q.scheduled_time <= new.now AND length(q.job_id) = 16
            ORDER BY q.scheduled_time, q.job_id LIMIT new.lim
        )
        UNION ALL
        SELECT * FROM (
            SELECT 3, q.scheduled_time, q.job_id FROM ratchet.scheduler_job_queue q
            WHERE q.queue = new.queue AND q.priority = 3 AND q.status = 'PENDING' AND q.blocked_by = 0
              AND q.parked_on IS NULL AND q.scheduled_time <= new.now AND length(q.job_id) = 16
            ORDER BY q.scheduled_time, q.job_id LIMIT new.lim
        )
        UNION ALL
        SELECT * FROM (
            SELECT 4, q.scheduled_time, q.job_id FROM ratchet.scheduler_job_queue q
            WHERE q.queue = new.queue AND q.priority = 4 AND q.status = 'PENDING' AND q.blocked_by = 0
              AND q.parked_on IS NULL AND q.scheduled_time <= new.now AND length(q.job_id) = 16
            ORDER BY q.scheduled_time, q.job_id LIMIT new.lim
        )
    ) h
    ORDER BY
        h.level + CASE WHEN new.boost_ms > 0 THEN (new.now - h.scheduled_time) / new.boost_ms ELSE 0 END DESC,
        h.scheduled_time,
        h.job_id
    LIMIT new.lim;
END;
