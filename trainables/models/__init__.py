"""The models: one file each, its stem is the name. `find("...")` gives the class, `names()` the list."""

from trainables.plugins import Folder

_folder = Folder("model", __name__)
find, names = _folder.find, _folder.names
