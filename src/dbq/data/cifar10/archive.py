"""The official archive of CIFAR-10: downloaded or put there by hand, then checked and unpacked."""

from __future__ import annotations

import tarfile
from pathlib import Path

from dbq.data.cifar10.fetching import fetch, md5_of
from dbq.data.cifar10.files import FOLDERS, find, load_cifar10
from dbq.errors import DataError, first_line
from dbq.support.atomic import partial_folder
from dbq.support.progress import Progress, silent

HOME = "https://www.cs.toronto.edu/~kriz/"
ARCHIVES = {  # the md5 is the home page's; the first one is downloaded
    "cifar-10-binary.tar.gz": "c32a1d4ab5d03f1284b67883e8d87530",
    "cifar-10-python.tar.gz": "c58f30108f718f92721af3b95e74349a",
}


def prepare(directory: Path, progress: Progress = silent) -> str:
    """Get CIFAR-10 into `directory`, unless it is there already."""
    if find(directory):
        for split in ("train", "test"):
            load_cifar10(directory, split)
        return f"CIFAR-10 is already in {directory}"
    archive = next((directory / name for name in ARCHIVES if (directory / name).exists()), None)
    if archive is None:
        name, md5 = next(iter(ARCHIVES.items()))
        archive = directory / name
        fetch(HOME + name, archive, md5, progress)
    elif (found := md5_of(archive)) != ARCHIVES[archive.name]:
        raise DataError(
            f"{archive} has md5 {found}, expected {ARCHIVES[archive.name]}: remove it and run this again"
        )
    unpack(archive, directory)
    return f"CIFAR-10 unpacked into {directory}; {archive.name} may be removed"


def unpack(archive: Path, directory: Path) -> None:
    """Put the archive's folder into `directory`, as a whole or not at all."""
    try:
        with partial_folder(directory / "cifar-10") as partial:
            with tarfile.open(archive) as tar:
                tar.extractall(partial, filter="data")
            for folder in FOLDERS:
                if (partial / folder).is_dir():
                    _publish(partial / folder, directory / folder)
                    return
        raise DataError(f"{archive} has no folder {' or '.join(FOLDERS)}: fetch it again")
    except (OSError, tarfile.TarError, EOFError) as error:
        raise DataError(f"cannot unpack {archive}: {first_line(error)}; fetch it again") from None


def _publish(folder: Path, place: Path) -> None:
    """Rename the folder, unless another process was first with the same one."""
    try:
        folder.replace(place)
    except OSError:
        if not place.is_dir():
            raise
