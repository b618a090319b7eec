DELETE FROM ratchet.scheduler_queue_pause p WHERE p.queue = :queue::text
