"""STL-10: 13,000 labelled colour images, 96x96, ten classes. Coates et al. 2011."""

from dataclasses import dataclass

from torchvision import datasets

from trainables.data.shared.torchvision import PackedData

# As in its class_names.txt, which has no published md5.
CLASSES = ("airplane", "bird", "car", "cat", "deer", "dog", "horse", "monkey", "ship", "truck")


class _Labelled(datasets.STL10):
    """Without the 100,000 unlabelled images, which torchvision requires for every split."""

    train_list = datasets.STL10.train_list[:2]


@dataclass(frozen=True, kw_only=True)
class Stl10(PackedData):
    """[5000 + 8000, 3, 96, 96], the labelled images."""

    theirs = _Labelled
    shape = (3, 96, 96)
    class_names = CLASSES
