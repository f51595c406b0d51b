"""Draw the pictures of docs/gallery.md again, by the commands on that page.

    python -m tests.gallery
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from tests.helpers.pages import ROOT, marked_blocks, play

PAGE = ROOT / "docs" / "gallery.md"
IMAGES = ROOT / "docs" / "images" / "gallery"


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="netsim-gallery-") as folder:
        play(marked_blocks(PAGE), Path(folder))
        IMAGES.mkdir(parents=True, exist_ok=True)
        for image in sorted(Path(folder).glob("*.png")):
            shutil.copyfile(image, IMAGES / image.name)
            print(f"figure: {(IMAGES / image.name).relative_to(ROOT)}")


if __name__ == "__main__":
    main()
