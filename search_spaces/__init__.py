"""Search spaces: a YAML file of ranges and first settings for each method, and its grammar."""
