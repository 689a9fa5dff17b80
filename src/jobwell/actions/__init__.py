"""What people may do, with audit: used by every face alike."""
