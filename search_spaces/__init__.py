"""Search spaces: a YAML file with ranges and published settings for each method, and its grammar."""
