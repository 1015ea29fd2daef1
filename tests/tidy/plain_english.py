#!/usr/bin/env python3
"""Checks the prose of comments, docs, messages and commit subjects: no private grammar, no sentence over 40 words.

usage: plain_english.py ROOT [PATH ...]

Without PATH it checks every tracked file but those that plain_english_exempt.txt names, and complains of
a name there that needs no exemption any more. STYLE.md has the rules of the prose.
"""
import io
import os
import re
import subprocess
import sys
import tokenize

WORDS_MAX = 40
SUBJECT_COLUMNS_MAX = 72
# The subjects of earlier commits stay as they are. A tag takes its place.
SUBJECTS_SINCE = "261337eb9491ff1e5befc459504c15397d7be759"
EXEMPT = "tests/tidy/plain_english_exempt.txt"
# As subjects of things. "who" and "whose" may stand for people in the guides: a quoted word is free.
FORBIDDEN = (
    (re.compile(r"\b(who|whoever|whom|whose)\b", re.IGNORECASE), "name the thing in place of"),
    (re.compile(r"\bbut for\b", re.IGNORECASE), "write 'except' in place of"),
    (re.compile(r"\bis none\b", re.IGNORECASE), "write 'is not a' in place of"),
    (re.compile(r"\blikewise\b", re.IGNORECASE), "say what is alike in place of"),
)
# A shorter string is a name or a key rather than a message.
MESSAGE_WORDS_MIN = 4
C_FAMILY = (".h", ".cc", ".c", ".cu", ".cuh", ".js")
CXX_FAMILY = (".h", ".cc", ".c", ".cu", ".cuh")
HASH_FAMILY = (".toml", ".cmake", ".sh", ".cfg", ".conf", ".yml", ".yaml", ".ptx")
SENTENCE_END = re.compile(r"(?<=[.!?])[)\"'*_]*\s+")
QUOTED = re.compile(r"`[^`]*`|\"[^\"]*\"|https?://\S+|\[[^\]]*\]\([^)]*\)")
CXX_TOKEN = re.compile(r"""
    (?P<skipped>//[^\n]*|/\*.*?\*/|^[ \t]*\#[ \t]*include[^\n]*|(?<!\w)(?:u8|[uUL])?'(?:\\.|[^'\\\n])*')
    |(?P<raw>(?:u8|[uUL])?R"(?P<delimiter>[^()\s\\]*)\((?P<raw_text>.*?)\)(?P=delimiter)")
    |(?P<string>(?:u8|[uUL])?"(?P<text>(?:\\.|[^"\\\n])*)")
    |(?P<other>\S)""", re.VERBOSE | re.DOTALL | re.MULTILINE)
NOT_PROSE = re.compile(r"^\s*(\||```|#!|NOLINT|clang-format|usage:|Usage:)")


class Block:
    """Consecutive lines of one prose text."""

    def __init__(self, line):
        self.line, self.words = line, []

    def add(self, text):
        self.words.append(text.strip())

    def text(self):
        return " ".join(self.words)


def c_blocks(text):
    block, column = None, -1
    for number, line in enumerate(text.splitlines(), 1):
        match = re.search(r"(?:^|[\s;{},)])(//[/!]?)\s?(.*)$", line)
        if match is None or re.search(r"\"[^\"]*//[^\"]*$", line[:match.start(1)] + "//"):
            if block is not None:
                yield block
            block = None
            continue
        trailing = line[:match.start(1)].strip() != ""
        if block is None or trailing or abs(match.start(1) - column) > 1 or not match.group(2).strip():
            if block is not None:
                yield block
            block, column = Block(number), match.start(1)
        if not NOT_PROSE.match(match.group(2)):
            block.add(match.group(2))
    if block is not None:
        yield block


def message_blocks(text):
    """The string literals of C++ that are long enough for a message. Adjacent ones are one text."""
    literals, first = [], 0
    for token in [*CXX_TOKEN.finditer(text), None]:
        if token is not None and token["skipped"]:
            continue  # A comment may stand between the parts of a literal.
        if token is not None and not token["other"]:
            first = first if literals else token.start()
            literals.append(token["raw_text"] if token["raw"] else unescaped(token["text"]))
            continue
        message = "".join(literals)
        if len(re.findall(r"[\w'-]+", message)) >= MESSAGE_WORDS_MIN:
            block = Block(text.count("\n", 0, first) + 1)
            block.add(message)
            yield block
        literals = []


def unescaped(literal):
    return re.sub(r"\\(.)", lambda match: {"n": "\n", "t": "\t"}.get(match[1], match[1]), literal)


def hash_blocks(text):
    block = None
    for number, line in enumerate(text.splitlines(), 1):
        match = re.match(r"^\s*#+ ?(.*)$", line)
        if match is None or not match.group(1).strip() or NOT_PROSE.match(line.strip()):
            if block is not None:
                yield block
            block = None
            continue
        if block is None:
            block = Block(number)
        block.add(match.group(1))
    if block is not None:
        yield block


def docstring_blocks(text):
    try:
        tokens = list(tokenize.generate_tokens(io.StringIO(text).readline))
    except (tokenize.TokenError, IndentationError, SyntaxError):
        return
    for before, token in zip([None, *tokens], tokens):
        if token.type == tokenize.STRING and token.string.startswith(('"""', 'r"""')) and (
                before is None or before.type in (tokenize.INDENT, tokenize.NEWLINE, tokenize.NL,
                                                  tokenize.COMMENT, tokenize.DEDENT)):
            yield from paragraph_blocks(token.string.strip('r"'), token.start[0])


def paragraph_blocks(text, first=1):
    block, fenced = None, False
    for number, line in enumerate(text.splitlines(), first):
        fenced ^= line.lstrip().startswith("```")
        starts = re.match(r"^\s*([-*+]|\d+\.|#+|>|\|)\s", line) is not None
        table = line.lstrip().startswith("|")
        if fenced or not line.strip() or starts or table or line.startswith("    "):
            if block is not None:
                yield block
            block = None
        if fenced or not line.strip() or (NOT_PROSE.match(line) and not table) or (line.startswith("    ") and not starts):
            continue
        if table:
            for cell in line.strip().strip("|").split("|"):
                alone = Block(number)
                alone.add(cell.replace(";", "."))  # Cells hold lists.
                yield alone
            continue
        if block is None:
            block = Block(number)
        block.add(re.sub(r"^\s*([-*+]|\d+\.|#+|>)\s+", "", line))
    if block is not None:
        yield block


def blocks_of(path, text):
    name = os.path.basename(path)
    if path.endswith(C_FAMILY):
        return c_blocks(text)
    if path.endswith(".md"):
        return paragraph_blocks(text)
    if path.endswith(".py") or text.startswith("#!/usr/bin/env python"):
        return [*hash_blocks(text), *docstring_blocks(text)]
    if path.endswith(HASH_FAMILY) or name == "CMakeLists.txt" or text.startswith("#!"):
        return hash_blocks(text)
    return ()


def forbidden(path, block, prose):
    for pattern, advice in FORBIDDEN:
        match = pattern.search(prose)
        if match:
            yield f"{path}:{block.line}: {advice} '{match.group(0)}'"


def check_text(path, text):
    for block in blocks_of(path, text):
        prose = QUOTED.sub("it", block.text())
        yield from forbidden(path, block, prose)
        for sentence in SENTENCE_END.split(prose):
            words = len(re.findall(r"[\w'-]+", sentence))
            if words > WORDS_MAX:
                yield f"{path}:{block.line}: a sentence of {words} words; at most {WORDS_MAX}"
    if path.endswith(CXX_FAMILY) and not path.startswith("tests/"):
        for block in message_blocks(text):
            yield from forbidden(path, block, QUOTED.sub("it", block.text()))


def check_subject(subject):
    if len(subject) > SUBJECT_COLUMNS_MAX:
        return f"commit '{subject}': {len(subject)} columns; at most {SUBJECT_COLUMNS_MAX}"
    return None


def git(root, *words):
    done = subprocess.run(["git", "-C", root, *words], capture_output=True, text=True, check=False)
    return done.stdout if done.returncode == 0 else None


def subjects(root):
    """Subjects of the commits since the last tag or, without a tag, since the commit that
    introduced the check."""
    tag = (git(root, "describe", "--tags", "--abbrev=0") or SUBJECTS_SINCE).strip()
    found = git(root, "log", "--no-merges", "--format=%s", f"{tag}..HEAD")
    if found is None:  # A shallow clone, or none at all.
        print(f"no subjects are checked: this clone lacks {tag}", file=sys.stderr)
    return (found or "").splitlines()


def exempt(root):
    with open(os.path.join(root, EXEMPT), encoding="utf-8") as file:
        return [line.strip() for line in file if line.strip() and not line.startswith("#")]


def check_paths(root, paths):
    for path in paths:
        try:
            with open(os.path.join(root, path), encoding="utf-8") as file:
                yield from check_text(path, file.read())
        except (UnicodeDecodeError, FileNotFoundError, IsADirectoryError):
            continue  # Data, or removed and not yet committed.


def main(root, paths):
    if paths:
        violations = list(check_paths(root, paths))
    else:
        known = exempt(root)
        every = [name for name in git(root, "ls-files", "-z").split("\0") if name]
        violations = list(check_paths(root, [path for path in every if path not in known]))
        violations += [found for found in map(check_subject, subjects(root)) if found]
        for path in known:
            if path not in every or not list(check_paths(root, [path])):
                violations.append(f"{EXEMPT}: {path} needs no exemption")
    for violation in violations:
        print(violation)
    return 1 if violations else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
