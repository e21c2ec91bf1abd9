"""The data sets: one file each, named by its stem. `find("...")` returns the class, `names()` the list."""

from trainables.plugins import Folder

_folder = Folder("dataset", __name__)
find, names = _folder.find, _folder.names
