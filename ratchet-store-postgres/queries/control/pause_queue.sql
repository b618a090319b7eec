INSERT INTO ratchet.scheduler_queue_pause (queue, paused_at)
VALUES (:queue::text, coalesce(:now::timestamptz, date_trunc('milliseconds', statement_timestamp())))
ON CONFLICT DO NOTHING
