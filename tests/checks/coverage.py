#!/usr/bin/env python3
"""What gcov counted in attn.h, against what tests/checks/coverage.txt excuses. Called by coverage.sh, which explains.

    coverage.py [-a] pass ... : file.json ...      -a: show what is excused, too

A pass with + behind its name does not run here but is played: its lines are those of the files under played/."""
import json
import re
import sys

SOURCE, EXCUSES = "attn.h", "tests/checks/coverage.txt"


def sections(text):
    """[(first line, name)] of the numbered sections"""
    found = [(1, "manual")]
    for i, line in enumerate(text, 1):
        m = re.match(r"^ \* {1,2}(\d+)  ([A-Z][A-Z0-9/, -]+)", line)
        if m and text[i - 2].startswith("/* ====="):
            found.append((i, "%s %s" % (m.group(1), m.group(2).strip(" ,-").lower())))
    return found


def counted(files, text, played):
    """{(function, line): [times, [times of each branch]]}, the sum of all implementations. Where their macros make them
    differ in branches, the first file that has the line is right."""
    lines = {}
    for name in files:
        for f in json.load(open(name))["files"]:
            if f["file"].split("/")[-1] != SOURCE:
                continue
            here = {}
            for x in f["lines"]:
                if text[x["line_number"] - 1].lstrip().startswith("ATTN_ASSERT("):
                    continue
                if pass_of(x["function_name"], played) and "/played/" not in name:
                    continue
                at = here.setdefault((x["function_name"], x["line_number"]), [0, []])
                at[0] += x["count"]
                at[1] += [b["count"] for b in x["branches"]]
            for key, (n, branches) in here.items():
                at = lines.setdefault(key, [0, branches])
                at[0] += n
                if at[1] is not branches and len(at[1]) == len(branches):
                    at[1] = [a + b for a, b in zip(at[1], branches)]
    return lines


def statements(text):
    """for each line of the source: all of the statements it takes part in, without comments and blanks. So an excuse finds
    its piece wherever the statement is wrapped."""
    source = "\n".join(text)
    source = re.sub(r"/\*.*?\*/", lambda m: "\n" * m.group().count("\n"), source, flags=re.S)
    source = re.sub(r"^[ ]*#(?:[^\n]*\\\n)*[^\n]*", lambda m: "\n" * m.group().count("\n"), source, flags=re.M)
    first, spans, depth = 0, [], 0                    # (first line, last line, text)
    line, begun, piece = 0, False, []
    for c in source:
        if c == "\n":
            line += 1
        elif not c.isspace():
            if not begun:
                first, begun = line, True
            piece.append(c)
            depth += (c == "(") - (c == ")")
            if c in ";{}" and (depth <= 0 or c != ";"):
                spans.append((first, line, "".join(piece)))
                begun, piece, depth = False, [], 0
    whole = [""] * len(text)
    for a, b, piece in spans:
        for at in range(a, b + 1):
            whole[at] += piece
    return whole


def excuses():
    """(where, function, how much at most, what, piece, reason) of every excuse"""
    for i, line in enumerate(open(EXCUSES), 1):
        if not line.strip() or line.startswith("#"):
            continue
        parts = [p.strip() for p in line.split(" | ")]
        m = len(parts) == 4 and all(parts) and re.match(r"^(?:(\d+) )?(line|timing|branch)(?:e?s)?$", parts[1])
        if not m:
            sys.exit("%s:%d: not 'function | [N] what | text | reason'" % (EXCUSES, i))
        piece = "" if parts[2] == "*" else re.sub(r"\s", "", parts[2])
        yield "%s:%d" % (EXCUSES, i), parts[0], int(m.group(1) or 1), m.group(2), piece, parts[3]


def by_lines(lines, passes):
    """lines, but what stands in a pass without its branches, and without what another pass takes: rows and vectors of a tile
    and lanes of a vector are constants of a pass, which leave some of it out"""
    taken = {line for (function, line), (n, _) in lines.items() if n and pass_of(function, passes)}
    return {(function, line): [int(line in taken), []] if pass_of(function, passes) else times
            for (function, line), times in lines.items()}


def pass_of(function, passes):
    """which one it belongs to, or nothing"""
    suffix = function.rsplit("_", 1)[-1]
    return suffix if suffix in passes else ""


def main():
    arguments = sys.argv[1:]
    show = arguments[:1] == ["-a"]
    arguments = arguments[show:]
    passes, files = arguments[:arguments.index(":")], arguments[arguments.index(":") + 1:]
    text = open(SOURCE).read().split("\n")
    heads = sections(text)
    played = [p[:-1] for p in passes if p.endswith("+")]
    passes = [p.rstrip("+") for p in passes]
    own = counted(files, text, played)
    lines = by_lines(own, passes)

    untaken = {}                                   # (function, line): "line", or how many branches
    for key, (n, branches) in lines.items():
        missing = sum(b == 0 for b in branches)
        if n == 0:
            untaken[key] = "line"
        elif missing:
            untaken[key] = "%d branch%s" % (missing, "es" if missing > 1 else "")

    whole, excused, problems, stale = statements(text), {}, [], []
    for where, function, most, what, piece, reason in excuses():
        here = [k for k in lines if k[0] == function and piece in whole[k[1] - 1]]
        if not here:
            stale.append("%s: there is no %s%s" % (where, function, " with '%s'" % piece if piece else ""))
        used = 0
        for key in here:
            n, branches = lines[key]
            if key in excused or (key not in untaken and what != "timing") or (what == "branch" and n == 0):
                continue
            used += sum(b == 0 for b in branches) if what == "branch" else 1
            excused[key] = reason
        if here and not used and what != "timing":
            stale.append("%s: not needed, every branch of %s is taken" % (where, function))
        if what in ("line", "branch") and used > most:
            problems.append("%s: %d times, but %d are excused" % (where, used, most))

    entered = {}
    for (function, line), (n, _) in own.items():
        entered[function] = entered.get(function, 0) + n
    for name in passes:
        if not any(pass_of(f, [name]) for f in entered):
            problems.append("there are no functions of %s" % name)
    for function, n in sorted(entered.items()):
        if n == 0 and pass_of(function, passes):
            problems.append("%s is never called" % function)

    groups = {}                                    # name: [lines, branches, excused lines, excused branches, untaken]
    shown = set()                                  # a kernel line counts once, although several passes contain it
    for (function, line), (n, branches) in sorted(lines.items(), key=lambda x: (x[0][1], x[0][0])):
        kernel = pass_of(function, passes)
        if kernel and line in shown:
            continue
        shown.add(line)
        group = [name for first, name in heads if first <= line][-1]
        g = groups.setdefault(group, [0, 0, 0, 0, []])
        g[0] += 1
        g[1] += len(branches)
        key = (function, line)
        if key in untaken:
            if key in excused:
                g[2] += n == 0
                g[3] += sum(b == 0 for b in branches)
            else:
                g[4].append(key)
            if show or key not in excused:
                which = [str(i) for i, b in enumerate(branches, 1) if b == 0] if n else []
                print("%s:%d: %s: %s%s: %s%s" % (SOURCE, line, function, untaken[key],
                                                 " (%s of %d)" % (",".join(which), len(branches)) if which else "",
                                                 text[line - 1].strip(),
                                                 "   <- " + excused[key] if key in excused else ""))

    passed = failed = 0
    for name, (n, branches, n_excused, branches_excused, missing) in groups.items():
        print("%s %-53s %5d lines, %5d branches; excused: %d, %d%s" %
              ("FAIL" if missing else "ok  ", name, n, branches, n_excused, branches_excused,
               "; NOT TAKEN in %d lines" % len(missing) if missing else ""))
        passed, failed = passed + (not missing), failed + bool(missing)
    for p in stale:                                # advisory: a refactoring need not touch the list
        print("note: " + p)
    for p in problems:
        print("FAIL " + p)
    failed += len(problems)
    print("coverage: %d passed, %d failed" % (passed, failed))
    return failed != 0


sys.exit(main())
