"""Reads a YAML file as lines: which begin something, and which are the inside of a text or a list begun before.

No more of YAML than is needed to change one list in place and keep every other byte.
"""

from dataclasses import dataclass

# What a line can be. INSIDE: it goes on with a text, a list or a mapping that an earlier line began; START: `---`.
CONTENT, COMMENT, BLANK, INSIDE, START = "content", "comment", "blank", "inside", "start"

# YAML takes these for line ends as well, and editors do not.
ODD_LINE_ENDS = "\r\x85\u2028\u2029"


class Unclear(Exception):
    """The file has a shape that is not understood, so that nothing may be changed."""


@dataclass
class Line:
    """One line: its text, its line end, how far it is indented, and what it is."""

    text: str
    end: str
    kind: str = CONTENT

    @property
    def indent(self):
        return len(self.text) - len(self.text.lstrip(" "))

    @property
    def bare(self):
        """Without indentation."""
        return self.text.lstrip(" ")


def read(text):
    """The lines of a file with one YAML document."""
    lines = [_split(raw) for raw in text.removeprefix("\ufeff").split("\n")]
    # The part after the last line end is a line of its own only if there is something in it.
    last = lines.pop()
    last.end = ""
    lines += [last] if last.text else []
    _Reader().mark(lines)
    return lines


def write(lines, like=""):
    """The text of the lines; the byte order mark of `like` is kept."""
    mark = "\ufeff" if like.startswith("\ufeff") else ""
    return mark + "".join(line.text + line.end for line in lines)


def _split(raw):
    crlf = raw.endswith("\r")
    text = raw[:-1] if crlf else raw
    if any(letter in text for letter in ODD_LINE_ENDS):
        raise Unclear("it has line ends that are neither LF nor CRLF")
    return Line(text, "\r\n" if crlf else "\n")


class _Reader:
    """Goes through the lines and remembers what is open at the end of each."""

    def __init__(self):
        self.quote = ""
        self.depth = 0
        # Of a block scalar (`key: |`): the header's indentation, and the content's once a line of it has been seen.
        self.header = None
        self.content = None

    def mark(self, lines):
        for line in lines:
            line.kind = self._kind(line)
            if line.kind == START and any(other.kind in (CONTENT, START) for other in _before(lines, line)):
                raise Unclear("it holds several documents")
            if line.kind == CONTENT or (line.kind == INSIDE and self.header is None):
                self._scan(line)
        if self.quote or self.depth:
            raise Unclear("a quote or a bracket is not closed")

    def _kind(self, line):
        empty = not line.text.strip(" \t")
        if self.header is not None:
            if empty or self._in_scalar(line):
                return INSIDE
            self.header = self.content = None
        if self.quote or self.depth:
            return INSIDE
        if empty:
            return BLANK
        if line.text.lstrip(" \t").startswith("#"):
            return COMMENT
        if line.bare.startswith("\t"):
            raise Unclear("a line is indented with a tab")
        return self._marker(line.text) or CONTENT

    def _in_scalar(self, line):
        if self.content is None:
            self.content = max(line.indent, self.header + 1)
        return line.indent >= self.content

    @staticmethod
    def _marker(text):
        if text.startswith("%"):
            raise Unclear("it has a directive")
        if text[:3] == "..." and not text[3:].strip():
            raise Unclear("it ends its document by itself")
        if text[:3] != "---" or text[3:4].strip():
            return None
        if text[3:].strip() and not text[3:].lstrip().startswith("#"):
            raise Unclear("something stands behind ---")
        return START

    def _scan(self, line):
        """Follows quotes and brackets through a line. `fresh`: a value may begin here."""
        text, fresh, i = line.text, True, 0
        while i < len(text):
            letter, blank_next = text[i], not text[i + 1 : i + 2].strip(" \t")
            if self.quote:
                i += self._in_quote(text, i)
                continue
            if letter == "#" and (i == 0 or text[i - 1] in " \t"):
                return
            if fresh and letter in "|>" and not self.depth:
                self.header = line.indent
                # With its indentation given (`|2`), the first line may be indented more than the rest.
                self.content = line.indent + 1 if any(c.isdigit() for c in text[i + 1 : i + 3]) else None
                return
            if fresh and letter in "!&*":
                i += _word(text[i:])
                continue
            fresh = self._step(letter, fresh, blank_next)
            i += 1

    def _in_quote(self, text, i):
        """How many letters further to look."""
        if self.quote == '"' and text[i] == "\\":
            return 2
        if text[i] == self.quote:
            if self.quote == "'" and text[i + 1 : i + 2] == "'":
                return 2
            self.quote = ""
        return 1

    def _step(self, letter, fresh, blank_next):
        if letter in " \t":
            return fresh
        if letter in "\"'" and fresh:
            self.quote = letter
            return False
        if letter in "[{" and (fresh or self.depth):
            self.depth += 1
            return True
        if letter in "]}" and self.depth:
            self.depth -= 1
            return False
        if letter == ",":
            return self.depth > 0
        if letter == ":":
            return blank_next or self.depth > 0
        return letter in "-?" and fresh and blank_next


def _before(lines, line):
    for other in lines:
        if other is line:
            return
        yield other


def _word(text):
    return len(text.split(" ", 1)[0])
