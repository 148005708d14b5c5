"""Makes the mistakes of mistakes.txt in attn_spec.py and cases.py, one at a time: a vector must notice each of them.

    python3 mistakes.py              all         -v   names what noticed it
    python3 mistakes.py -e 3         every third; of all of them the old text must occur
"""
import argparse
import os
import re
import sys
import types

HERE = os.path.dirname(os.path.abspath(__file__))


def read(name):
    with open(os.path.join(HERE, name), encoding='utf-8') as f: return f.read()


def mistakes(text):
    """(section, name, [(where, old, new)]) of each mistake."""
    found = []
    for line in text.splitlines():
        if line.startswith('# '):
            section, name = line[2:].split(' ', 1)
            found.append((section, name, []))
            where = ''
        elif line.startswith('@ '): where = line[2:]
        elif line.startswith('- '): old = line[2:].replace('\\n', '\n')
        elif line[:2] in ('+', '+ '): found[-1][2].append((where, old, line[2:].replace('\\n', '\n')))
    return found


def change(source, edits):
    """The source with the mistake; None: an old text is not there, or not once."""
    for where, old, new in edits:
        start = source.find('\n' + where) if where else 0
        end = re.compile(r'\n(?=[^\s])').search(source, start + 1) if where else None
        end = end.start() if end else len(source)
        if start < 0 or source.count(old, start, end) != 1: return None
        at = source.index(old, start)
        source = source[:at] + new + source[at + len(old):]
    return source


def vectors(text):
    """(section, name, operation, parameters, hash) of each vector."""
    lines = [line.split() for line in text.splitlines() if line and line[0] != '#']
    return [(w[0], w[1], w[2], [pair.split('=') for pair in w[3:-1]], w[-1]) for w in lines]


def noticed_by(source, cases):
    """The first vector that has another hash with this source, or None."""
    module = types.ModuleType('mistaken')
    exec(compile(source, 'mistaken', 'exec'), module.__dict__)          # pylint: disable=exec-used
    return next((name for _, name, operation, parameters, want in cases
                 if module.fnv(module.compute(operation, module.Case(parameters))) != want), None)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument('-e', type=int, default=1)
    p.add_argument('-v', action='store_true')
    a = p.parse_args()
    source, cases, bad, n = read('attn_spec.py') + read('cases.py').replace('from attn_spec import *', ''), vectors(read('vectors.txt')), 0, 0
    found = mistakes(read('mistakes.txt'))
    for section in sorted({'1'} | {case[0] for case in cases}, key=int):     # every section with vectors
        if sum(m[0] == section for m in found) < 3: sys.exit('FAIL section %s has fewer than three mistakes' % section)
    for i, (section, name, edits) in enumerate(found):
        text = change(source, edits)
        if text is not None and i % a.e: continue                       # all are looked up, some are made
        n += 1
        by_section = sorted(cases, key=lambda case, s=section: case[0] != s)    # those of the section first
        problem = notice = None
        if text is None: problem = 'its old text does not occur once'
        else:
            try: notice = noticed_by(text, by_section)
            except Exception as e: problem = repr(e)                    # pylint: disable=broad-except
        if not notice:
            bad += 1
            print('FAIL section %s: %s: %s' % (section, name, problem or 'no vector notices'))
        elif a.v: print('ok section %s: %s: %s' % (section, name, notice))
    print('mistakes: %d passed, %d failed' % (n - bad, bad))
    return int(bad > 0)


if __name__ == '__main__':
    sys.exit(main())
