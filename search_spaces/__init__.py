"""Search spaces: a YAML file with ranges and the settings to try first for each method, and its grammar."""
