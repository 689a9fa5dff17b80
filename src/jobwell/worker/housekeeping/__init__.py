"""What any live worker does between jobs: flip due ones, rescue the jobs of the dead, keep the tables in shape."""
