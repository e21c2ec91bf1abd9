"""What is worth trying: a YAML file of ranges and published settings for each method, and their grammar."""
