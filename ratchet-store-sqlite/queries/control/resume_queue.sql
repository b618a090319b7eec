DELETE FROM ratchet.scheduler_queue_pause WHERE queue = :queue
