-- The same loop over what jobs of one queue are parked on: of each as many as this node has room for.
CREATE TEMP TRIGGER IF NOT EXISTS choose_parked AFTER INSERT ON wanted_parking WHEN new.free > 0
BEGIN
    INSERT INTO parked_head (job_id, level, scheduled_time, parked_on)
    SELECT h.job_id, h.level, h.scheduled_time, new.parked_on
    FROM (
        SELECT * FROM (
            SELECT 0 AS level, q.scheduled_time, q.job_id FROM ratchet.scheduler_job_queue q
            WHERE q.queue = new.queue AND q.parked_on = new.parked_on AND q.priority = 0 AND q.status = 'PENDING'
              AND q.blocked_by = 0 AND q.scheduled_time <= new.now AND length(q.job_id) = 16
            ORDER BY q.scheduled_time, q.job_id LIMIT new.free
        )
        UNION ALL
        SELECT * FROM (
            SELECT 1, q.scheduled_time, q.job_id FROM ratchet.scheduler_job_queue q
            WHERE q.queue = new.queue AND q.parked_on = new.parked_on AND q.priority = 1 AND q.status = 'PENDING'
              AND q.blocked_by = 0 AND q.scheduled_time <= new.now AND length(q.job_id) = 16
            ORDER BY q.scheduled_time, q.job_id LIMIT new.free
        )
        UNION ALL
        SELECT * FROM (
            SELECT 2, q.scheduled_time, q.job_id FROM ratchet.scheduler_job_queue q
            WHERE q.queue = new.queue AND q.parked_on = new.parked_on AND q.priority = 2 AND q.status = 'PENDING'
              AND q.blocked_by = 0 AND q.scheduled_time <= new.now AND length(q.job_id) = 16
            ORDER BY q.scheduled_time, q.job_id LIMIT new.free
        )
        UNION ALL
        SELECT * FROM (
            SELECT 3, q.scheduled_time, q.job_id FROM ratchet.scheduler_job_queue q
            WHERE q.queue = new.queue AND q.parked_on = new.parked_on AND q.priority = 3 AND q.status = 'PENDING'
              AND q.blocked_by = 0 AND q.scheduled_time <= new.now AND length(q.job_id) = 16
            ORDER BY q.scheduled_time, q.job_id LIMIT new.free
        )
        UNION ALL
        SELECT * FROM (
            SELECT 4, q.scheduled_time, q.job_id FROM ratchet.scheduler_job_queue q
            WHERE q.queue = new.queue AND q.parked_on = new.parked_on AND q.priority = 4 AND q.status = 'PENDING'
              AND q.blocked_by = 0 AND q.scheduled_time <= new.now AND length(q.job_id) = 16
            ORDER BY q.scheduled_time, q.job_id LIMIT new.free
        )
    ) h
    ORDER BY
        h.level + CASE WHEN new.boost_ms > 0 THEN (new.now - h.scheduled_time) / new.boost_ms ELSE 0 END DESC,
        h.scheduled_time,
        h.job_id
    LIMIT new.free;
END;
