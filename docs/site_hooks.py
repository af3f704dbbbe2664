"""What mkdocs is told beyond mkdocs.yml, so that docs/ reads on the site as it does in the repository.

- Headings have the anchors that GitHub gives them.
- Links to files outside of docs/ lead to the repository, whose address is in the variable REPOSITORY_URL. Without it,
  their text stays.
- The page of the demo, build/demo.html, becomes a part of the site where it was made.
"""

import os
import posixpath
import re
import shutil
from pathlib import Path
from typing import Any

DEMO = Path("build/demo.html")  # export.py --to web
_LINK = re.compile(r"\[(?P<text>[^\]]*)\]\((?P<path>\.\./[^)\s]*)\)")
_BLOCK = re.compile(r"(^```.*?^```)", re.DOTALL | re.MULTILINE)


def anchor(heading: str, separator: str) -> str:
    """Return the anchor that GitHub gives a heading."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", separator)


def on_config(config: Any) -> Any:
    """Set the anchors, and show where to try the demo if its page was made."""
    config.mdx_configs["toc"] = {**config.mdx_configs.get("toc", {}), "slugify": anchor, "permalink": True}
    config.repo_url = os.environ.get("REPOSITORY_URL") or None
    if DEMO.exists():
        config.nav.insert(1, {"Try it in your browser": "demo.html"})
    return config


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Return a page whose links out of docs/ lead to the repository."""
    folder = posixpath.dirname(page.file.src_uri)
    repository = os.environ.get("REPOSITORY_URL", "")

    def changed(match: re.Match[str]) -> str:
        path = posixpath.normpath(posixpath.join("docs", folder, match["path"]))
        if path.startswith("docs/"):
            return match[0]
        return f"[{match['text']}]({repository}/blob/main/{path})" if repository else match["text"]

    parts = _BLOCK.split(markdown)  # texts, and blocks of code between them
    return "".join(part if i % 2 else _LINK.sub(changed, part) for i, part in enumerate(parts))


def on_post_build(config: Any) -> None:
    """Add the page of the demo."""
    if DEMO.exists():
        shutil.copy(DEMO, Path(config.site_dir) / DEMO.name)
