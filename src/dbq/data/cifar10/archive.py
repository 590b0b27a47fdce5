"""Getting CIFAR-10: the official archive, fetched or put there by hand, checked and unpacked."""

from __future__ import annotations

import shutil
import tarfile
from pathlib import Path

from dbq.data.cifar10.files import FOLDERS, find, load_cifar10
from dbq.data.fetching import fetch, md5_of
from dbq.errors import DataError, first_line
from dbq.support.progress import Progress, silent

HOME = "https://www.cs.toronto.edu/~kriz/"
ARCHIVES = {  # file, the md5 its home page prints; the first is what we fetch
    "cifar-10-binary.tar.gz": "c32a1d4ab5d03f1284b67883e8d87530",
    "cifar-10-python.tar.gz": "c58f30108f718f92721af3b95e74349a",
}


def prepare(directory: Path, progress: Progress = silent) -> str:
    """Make `directory` hold CIFAR-10; what is there already is not fetched again."""
    if find(directory):
        for split in ("train", "test"):
            load_cifar10(directory, split)
        return f"CIFAR-10 is in {directory} already"
    archive = next((directory / name for name in ARCHIVES if (directory / name).exists()), None)
    if archive is None:
        name, md5 = next(iter(ARCHIVES.items()))
        archive = directory / name
        fetch(HOME + name, archive, md5, progress)
    elif (found := md5_of(archive)) != ARCHIVES[archive.name]:
        raise DataError(
            f"{archive} has md5 {found}, expected {ARCHIVES[archive.name]}: remove it, fetch again"
        )
    unpack(archive, directory)
    return f"CIFAR-10 unpacked into {directory}; {archive.name} may be removed"


def unpack(archive: Path, directory: Path) -> None:
    """The archive's one folder, in `directory` as a whole or not at all."""
    partial = directory / "cifar-10.partial"
    try:
        with tarfile.open(archive) as tar:
            tar.extractall(partial, filter="data")
        for folder in FOLDERS:
            if (partial / folder).is_dir():
                (partial / folder).replace(directory / folder)
                return
        raise DataError(f"{archive} has no folder {' or '.join(FOLDERS)}: fetch it again")
    except (OSError, tarfile.TarError, EOFError) as error:
        raise DataError(f"cannot unpack {archive}: {first_line(error)}; fetch it again") from None
    finally:
        shutil.rmtree(partial, ignore_errors=True)
