"""A study in a notebook or a script: commands followed in processes of their own, and what they
show there."""
