INSERT INTO ratchet.scheduler_queue_pause (queue, paused_at)
VALUES (:queue, coalesce(:now, CAST(round(unixepoch('subsec') * 1000) AS INTEGER)))
ON CONFLICT DO NOTHING
