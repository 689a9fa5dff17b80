"""For tests of applications and of Jobwell itself."""
