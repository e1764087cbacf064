"""Several segments read as one."""
