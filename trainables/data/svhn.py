"""SVHN: house-number digits, 32x32, colour, ten classes. Netzer et al. 2011."""

from dataclasses import dataclass

from torchvision import datasets

from trainables.data.shared.torchvision import Published, TorchvisionData


@dataclass(frozen=True, kw_only=True)
class Svhn(TorchvisionData):
    """[73257 + 26032, 3, 32, 32], without the 531,131 easier images of `extra`."""

    theirs = datasets.SVHN
    shape = (3, 32, 32)
    class_names = "0123456789"

    def files(self) -> list[Published]:
        listed = (self.theirs.split_list[split] for split in ("train", "test"))
        return [Published(name, md5, (url,)) for url, name, md5 in listed]
