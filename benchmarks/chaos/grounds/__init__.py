"""Where studies run under fire: a file each, with its faults."""
