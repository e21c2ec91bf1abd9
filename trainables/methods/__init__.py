"""The methods, one file each: `find(stem)` returns the class, `names()` the list."""

from trainables.plugins import Folder

_folder = Folder("method", __name__)
find = _folder.find
names = _folder.names
