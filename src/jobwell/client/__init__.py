"""The producer's side: enqueue, sync and async, alone or within the caller's transaction."""
