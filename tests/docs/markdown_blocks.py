"""Markdown blocks: the fenced code blocks of a page, and what the comments before them request.

A block of language `sh` holds commands that a reader types. Comments in the lines before it say how a
test runs it:

    <!-- on server -->                 on the server's host. The default is the client's
    <!-- on server, keeps running -->  the command serves until the page ends, or until the next such block
    <!-- on client, exit 125 -->       the exit status is not 0
    <!-- prints: TEXT -->              the output contains TEXT (may be repeated)
    <!-- input: TEXT -->               TEXT is typed at the next prompt (may be repeated). TOKEN stands for
                                       the newest token that a block printed, or wrote into a file of the
                                       server
    <!-- not run: REASON -->           no test runs it

One comment can hold several requests, with " | " between them.
"""
import dataclasses
import re

FENCE = re.compile(r"^\s*(`{3,})\s*([\w+-]*)\s*$")
COMMENT = re.compile(r"^\s*<!-- (.*) -->\s*$")
PLACE = re.compile(r"^on (client|server)(, keeps running)?(?:, exit (\d+))?$")


class PageError(Exception):
    """The page is not in the form that the test needs."""


@dataclasses.dataclass
class Block:
    page: str
    line: int
    language: str
    text: str = ""
    host: str = "client"
    keeps_running: bool = False
    status: int = 0
    prints: list = dataclasses.field(default_factory=list)
    inputs: list = dataclasses.field(default_factory=list)
    not_run: str = ""

    def where(self):
        return f"{self.page}:{self.line}"

    def apply(self, comment, line):
        """Takes over what one comment requests."""
        place = PLACE.match(comment)
        if place:
            self.host, self.keeps_running = place[1], place[2] is not None
            self.status = int(place[3] or 0)
            return
        word, _, text = comment.partition(":")
        text = text.strip()
        if not text or word == "on":
            raise PageError(f"{self.page}:{line}: unknown request '{comment}'")
        if word == "prints":
            self.prints.append(text)
        elif word == "input":
            self.inputs.append(text)
        else:
            self.not_run = text


def is_request(comment):
    return re.match(r"on |(prints|input|not run):", comment) is not None


def blocks(page, text):
    """The page's fenced blocks in order."""
    found, requests, inside, fence = [], [], None, ""
    for number, line in enumerate(text.splitlines(), 1):
        opened = FENCE.match(line)
        if inside is not None:
            if opened and opened[1] == fence and not opened[2]:
                found.append(inside)
                inside = None
            else:
                inside.text += line + "\n"
            continue
        comment = COMMENT.match(line)
        if opened:
            if not opened[2]:
                raise PageError(f"{page}:{number}: a block without a language (sh, text, toml, ...)")
            inside, fence = Block(page, number, opened[2]), opened[1]
            for at, request in requests:
                if inside.language != "sh":
                    raise PageError(f"{page}:{at}: a request before a block that is not sh")
                inside.apply(request, at)
            requests = []
        elif comment and is_request(comment[1]):
            requests += [(number, each) for each in comment[1].split(" | ")]
        elif requests:
            raise PageError(f"{page}:{requests[-1][0]}: no block follows the request")
    if inside is not None:
        raise PageError(f"{inside.where()}: the block does not end")
    return found


def commands(page, text):
    """The blocks of commands, those that no test runs included."""
    return [block for block in blocks(page, text) if block.language == "sh"]
