"""PASCAL VOC 2012: 2,913 photographs with masks of 21 classes. Everingham et al. 2010."""

from dataclasses import dataclass
from pathlib import Path

from trainables.data.shared.images import Size, required
from trainables.data.shared.mask_files import MaskFiles, MaskList
from trainables.data.shared.masks import VOID, Legend
from trainables.fields import number
from trainables.files.data_files import lines_of
from trainables.kinds import count_of
from trainables.problems import FieldError

CLASSES = (
    "background",
    "aeroplane",
    "bicycle",
    "bird",
    "boat",
    "bottle",
    "bus",
    "car",
    "cat",
    "chair",
    "cow",
    "dining table",
    "dog",
    "horse",
    "motorbike",
    "person",
    "potted plant",
    "sheep",
    "sofa",
    "train",
    "tv/monitor",
)
LISTS = {"train": "train", "test": "val"}  # its own test images have no public masks


@dataclass(frozen=True, kw_only=True)
class Voc(MaskFiles):
    """`path` is VOCdevkit/VOC2012, with JPEGImages, SegmentationClass and ImageSets.

    Its masks of test are not public: its val images are the sealed test split, and validation is
    carved from train. Boundaries of objects have no label.
    """

    size: Size = number(
        512, low=1, doc="side in pixels, or [height, width]: center crop and resize"
    )

    @property
    def legend(self) -> Legend:
        return Legend((VOID,), CLASSES)

    def lists(self) -> dict[str, MaskList]:
        return {ours: self._listed(theirs) for ours, theirs in LISTS.items()}

    def _listed(self, name: str) -> MaskList:
        listed = required(self.path, f"ImageSets/Segmentation/{name}.txt")
        keys = [key for _, key in lines_of("path", listed) if key]
        if not keys:
            raise FieldError("path", f"{listed} is empty", "Unpack the archive again.")
        images = self._files(listed, keys, "JPEGImages", ".jpg")
        return MaskList(images, self._files(listed, keys, "SegmentationClass", ".png"))

    def _files(self, listed: Path, keys: list[str], folder: str, ending: str) -> list[Path]:
        files = [required(self.path, folder) / f"{key}{ending}" for key in keys]
        missing = [file for file in files if not file.exists()]
        if missing:
            count = count_of(len(missing), "files")
            found = f"{listed} names {count} that cannot be found, e.g. {missing[0]}"
            raise FieldError("path", found, "Unpack the archive again.")
        return files
