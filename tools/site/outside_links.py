"""Outside links: a hook of mkdocs for links that lead out of docs/, such as ../README.md.

A linked page or file becomes part of the site, under repository/. A link to a folder becomes its name.
So the same links work in a checkout and on the site. A link to a file that is missing is left alone,
and mkdocs reports it.
"""
import os
import posixpath
import re

from mkdocs.structure.files import File

LINK = re.compile(r"\[([^\]]+)\]\(([^)\s#]+)(#[^)\s]*)?\)")
PLACE = "repository"


def target_of(page, link):
    """The linked path from the root of the repository, or None: the link stays within docs/ or is a
    URL. `page`: the page's path within docs/, or under repository/."""
    if "://" in link or link.startswith(("mailto:", "/")):
        return None
    own = page[len(PLACE) + 1:] if page.startswith(PLACE + "/") else "docs/" + page
    path = posixpath.normpath(posixpath.join(posixpath.dirname(own), link))
    if path.startswith("docs/") and not page.startswith(PLACE + "/"):
        return None
    return path


def place_of(path):
    """Where the site has that path, from the site's root as mkdocs names its sources."""
    if path.startswith("docs/"):
        return path[len("docs/"):]
    shown = path.endswith((".md", ".txt", ".json", ".svg", ".png"))
    return f"{PLACE}/{path}" if shown else f"{PLACE}/{path}.txt"  # A browser shows text, and saves a .toml.


def on_files(files, config):
    root = os.path.dirname(config.config_file_path)
    waiting = [(file.src_uri, file.abs_src_path) for file in files.documentation_pages()]
    while waiting:
        page, source = waiting.pop()
        with open(source, encoding="utf-8") as text:
            links = LINK.findall(text.read())
        for _, link, _ in links:
            path = target_of(page, link)
            if path is None or path.startswith("docs/") or not os.path.isfile(os.path.join(root, path)):
                continue
            place = place_of(path)
            if files.get_file_from_path(place) is None:
                files.append(File.generated(config, place, abs_src_path=os.path.join(root, path)))
                if path.endswith(".md"):
                    waiting.append((place, os.path.join(root, path)))
    return files


def on_page_markdown(markdown, page, config, files):
    root = os.path.dirname(config.config_file_path)

    def changed(match):
        text, link, anchor = match[1], match[2], match[3] or ""
        path = target_of(page.file.src_uri, link)
        if path is None:
            return match[0]
        if os.path.isdir(os.path.join(root, path)):
            return f"`{path}/`"
        to = posixpath.relpath(place_of(path), posixpath.dirname(page.file.src_uri) or ".")
        return f"[{text}]({to}{anchor})"

    return LINK.sub(changed, markdown)
