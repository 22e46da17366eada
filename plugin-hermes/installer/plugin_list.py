"""Changes the lists `plugins.enabled` and `plugins.disabled` of a config.yaml in place: every other byte is kept.

Understands the shapes that people and Hermes write; raises Unclear for any other, before anything is changed.
"""

import re

from yaml_lines import CONTENT, INSIDE, Line, Unclear, read, write

# A key and what stands behind its colon.
_KEY = re.compile(r"""("[^"\\]*"|'[^']*'|[\w./$](?:[\w./$ -]*[\w./$-])?)[ ]*:([ \t].*|)""")
# What may stand there: blanks, the value, blanks with a comment.
_REST = re.compile(r"([ \t]*)(\[[^\[\]{}#]*\]|\{ *\}|null|Null|NULL|~|)([ \t]*|[ \t]+#.*)")
# A text that is one and the same to every reader of YAML.
_NAME = r"""(?:"[^"\\]*"|'[^']*'|\w(?:[\w./+@-]|:(?=\S))*)"""
_ITEM = re.compile(rf"( *-[ ]+)({_NAME})([ \t]*|[ \t]+#.*)")


def enable(text, name):
    """The text with `name` in `enabled`, and not in `disabled`, which would win."""
    lines = read(_edited(text, "disabled", _remove, name))
    at, child = _place(lines)
    found = at and child and _find(lines, at[0] + 1, at[1], child, "enabled")
    if found:
        _add(lines, *found, name)
    elif at:
        pad = " " * (child or 2)
        # `plugins: {}` and `plugins: null` become a mapping that has something in it.
        _set_value(lines[at[0]], "")
        _insert(lines, at[0] + 1, [f"{pad}enabled:", f"{pad}  - {name}"])
    else:
        _insert(lines, len(lines), ["plugins:", "  enabled:", f"    - {name}"])
    return write(lines, text)


def disable(text, name):
    """The text without `name` in `enabled`."""
    return _edited(text, "enabled", _remove, name)


def _edited(text, key, edit, name):
    """The text after an edit of one of the lists of `plugins:`, if it is there."""
    lines = read(text)
    at, child = _place(lines)
    found = at and child and _find(lines, at[0] + 1, at[1], child, key)
    if not found:
        return text
    edit(lines, *found, name)
    return write(lines, text)


# --- where things are -----------------------------------------------------------------------------------------------


def _place(lines):
    """Where `plugins:` is, and how far the settings in it are indented; None for what is not there."""
    at = _find(lines, 0, len(lines), 0, "plugins")
    if at is None:
        return None, None
    _, value, _ = _rest(lines[at[0]])
    inner = [line for line in lines[at[0] + 1 : at[1]] if line.kind in (CONTENT, INSIDE)]
    # An item under `plugins:` itself may be indented as little as the key.
    if value.startswith("[") or (inner and (value or not inner[0].indent)):
        raise Unclear("plugins: is not written as one setting a line")
    return at, inner[0].indent if inner else None


def _find(lines, first, stop, indent, wanted):
    """A mapping's key: the number of its line, and that of the line after its value. None if there is no such key."""
    keys = _keys(lines, first, stop, indent)
    places = [place for place, (_, key) in enumerate(keys) if key == wanted]
    if len(places) > 1:
        raise Unclear(f"it has {wanted!r} twice")
    if not places:
        return None
    after = keys[places[0] + 1 :]
    return keys[places[0]][0], after[0][0] if after else stop


def _keys(lines, first, stop, indent):
    """The keys of the mapping with this indentation between two lines, as pairs of line number and key."""
    keys = []
    for number in range(first, stop):
        line = lines[number]
        if line.kind == INSIDE and indent == 0 and re.match(r"""["']?plugins["']?[ ]*:""", line.text):
            raise Unclear(f"line {number + 1} may be part of a text")
        if line.kind != CONTENT or (keys and (line.indent > indent or _is_item(line, indent))):
            continue
        match = _KEY.fullmatch(line.bare)
        if line.indent != indent or not match:
            raise Unclear(f"line {number + 1} is not the name of a setting")
        keys.append((number, _unquoted(match[1])))
    return keys


def _is_item(line, indent):
    """A list may be indented no more than the key it belongs to."""
    return line.indent == indent and (line.bare + " ").startswith("- ")


def _rest(line):
    """What stands behind a key: blanks, a value that is understood, blanks and comment."""
    match = _REST.fullmatch(_KEY.fullmatch(line.bare)[2])
    if not match:
        raise Unclear(f"the value of {line.bare.split(':')[0]} is neither a list of names nor empty")
    return match.groups()


def _items(lines, header, stop):
    """The items of a list written as one item a line, as pairs of line number and name."""
    items = []
    for number in range(header + 1, stop):
        line = lines[number]
        if line.kind not in (CONTENT, INSIDE):
            continue
        match = _ITEM.fullmatch(line.text)
        aligned = not items or lines[items[0][0]].indent == line.indent
        if line.kind == INSIDE or not match or not aligned:
            raise Unclear(f"line {number + 1} is not a plugin's name")
        items.append((number, _unquoted(match[2])))
    return items


def _pieces(value):
    """What is between the commas of a list in brackets."""
    pieces = value[1:-1].split(",")
    names = pieces if pieces[-1].strip() else pieces[:-1]
    if not all(re.fullmatch(_NAME, piece.strip()) for piece in names):
        raise Unclear("a list in brackets holds more than names")
    return pieces


def _unquoted(text):
    return text.strip().strip("\"'")


# --- the changes ----------------------------------------------------------------------------------------------------


def _add(lines, header, stop, name):
    _, value, _ = _rest(lines[header])
    items = _items(lines, header, stop)
    if (value and items) or value.startswith("{"):
        raise Unclear("plugins.enabled is not a list of names")
    if value.startswith("["):
        if name not in map(_unquoted, _pieces(value)):
            _set_value(lines[header], f"[{_joined(value[1:-1], name)}]")
    elif value:
        _set_value(lines[header], f"[{name}]")
    elif name not in [known for _, known in items]:
        last = items[-1][0] if items else header
        dash = _ITEM.fullmatch(lines[last].text)[1] if items else " " * (lines[header].indent + 2) + "- "
        _insert(lines, last + 1, [dash + name])


def _remove(lines, header, stop, name):
    _, value, _ = _rest(lines[header])
    items = _items(lines, header, stop)
    if value and items:
        raise Unclear("a list of plugins is written in two ways at once")
    if value.startswith("["):
        pieces = _pieces(value)
        if name in map(_unquoted, pieces):
            _set_value(lines[header], f"[{_without(pieces, name)}]")
    for number, known in reversed(items):
        if known == name:
            _delete(lines, number)
    if items and all(known == name for _, known in items):
        # With nothing behind it the key would be null, which is no list.
        _set_value(lines[header], "[]")


def _joined(inner, name):
    """What is between brackets, with another name in the same style."""
    body = inner.rstrip()
    if not body:
        return name
    return body + (" " if body.endswith(",") else ", ") + name + inner[len(body) :]


def _without(pieces, name):
    kept = [piece for piece in pieces if _unquoted(piece) != name]
    if not "".join(kept).strip():
        return ""
    lead = pieces[0][: len(pieces[0]) - len(pieces[0].lstrip())]
    tail = pieces[-1][len(pieces[-1].rstrip()) :]
    kept[0] = lead + kept[0].lstrip()
    kept[-1] = kept[-1].rstrip() + tail
    return ",".join(kept)


def _set_value(line, value):
    """Puts another value behind a key; blanks and comment stay."""
    key = _KEY.fullmatch(line.bare)[1]
    blanks, _, tail = _rest(line)
    line.text = " " * line.indent + key + ":" + ((blanks or " ") + value if value else "") + tail


def _insert(lines, at, texts):
    end = next((line.end for line in lines if line.end), "\n")
    new = [Line(text, end) for text in texts]
    if at and lines[at - 1].end == "":
        # A file whose last line has no line end keeps it so.
        lines[at - 1].end, new[-1].end = end, ""
    lines[at:at] = new


def _delete(lines, number):
    if lines[number].end == "":
        lines[number - 1].end = ""
    del lines[number]
