"""The commands: `calstudy audit` is audit.py. The folder is the list. Words in, words out; heavy libraries are
imported by the command that needs them."""
