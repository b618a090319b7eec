SELECT p.queue FROM ratchet.scheduler_queue_pause p ORDER BY p.queue
