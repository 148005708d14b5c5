# exp.py attn.h script: bounds the error of attn__exp of attn.h for -100 <= n <= 0 (x from -69.3; there no product is denormal
# enough to matter), with fma. Rounding errors: Gappa. Approximation: exact fractions. Status 0: at most LIMIT ulp.
import re, struct, subprocess, sys
from fractions import Fraction as F
LIMIT = F(22, 10)
text = open(sys.argv[1]).read()
for line in ('r = attn__fma(n, -ATTN__LN2_HI, x);', 'r2 = r * r;',  # the formula below assumes this code
             'y = attn__fma(attn__fma(ATTN__E6, r, ATTN__E5), r2, attn__fma(ATTN__E4, r, ATTN__E3));',
             'y = attn__fma(y, r2, attn__fma(ATTN__E2, r, ATTN__E1));',
             'return attn__fma(y, attn__fma(n, -ATTN__LN2_LO, r) * two_n, two_n);'):
    if line not in text: sys.exit('attn__exp is another now: ' + line)
def const(name):
    s = re.search(r'#define ATTN__%s +\(?(-?[0-9.e-]+)f' % name, text).group(1)
    return F(struct.unpack('f', struct.pack('f', float(s)))[0])
E = [const('E%d' % i) for i in range(1, 7)]
hi, lo, log2e = const('LN2_HI'), const('LN2_LO'), const('LOG2E')
ln2 = sum(F(1, k * 2**k) for k in range(1, 90))  # the rest is below 2^-89
N = 100
# |n - x log2e| <= 1/2, so |x - n hi| <= 1/(2 log2e) + N |1/log2e - hi|
R = 1 / (2 * log2e) + N * abs(1 / log2e - hi) + F(1, 2**26)
D = N * abs(lo)
reduction = F(1, 2**26) + N * (abs(ln2 - hi - lo) + F(1, 2**89))  # r rounded once, |r| < 1/2; and the rest of ln 2
assert R < F(1, 2)
fact = [1]
for i in range(1, 14): fact.append(fact[-1] * i)
c = [F(0)] * 13
for i in range(1, 13): c[i] = (E[i - 1] if i <= 6 else 0) - F(1, fact[i])
tail = R**13 / fact[13] * 2
def at(p, r):
    v = F(0)
    for a in reversed(p): v = v * r + a
    return v
def approximation(a, b, parts=400):  # |1 + (r + d) q(r) - exp(r + d)|, |d| <= D
    h, worst = (b - a) / parts / 2, F(0)
    slope = sum(i * abs(c[i]) * R**(i - 1) for i in range(1, 13))
    ex = [F(1, f) for f in fact[:13]]
    for k in range(parts):
        m = a + (2 * k + 1) * h
        one = abs(at(c, m)) + h * slope + tail
        two = abs(at(E, m) - at(ex, m)) + 4 * h + tail  # |q'| + exp' < 4
        worst = max(worst, one + D * two + D * D)
    return worst
def dyadic(f): return '%db-%d' % (f.numerator, f.denominator.bit_length() - 1)
def up(f): return str(-((-f.numerator * 2**40) // f.denominator)) + 'b-40'
def gappa(a, b):
    names = ''.join('e%d = %s;\n' % (i + 1, dyadic(v)) for i, v in enumerate(E))
    script = '''@rnd = float<ieee_32,ne>;
%sr = rnd(rr);
r2 = rnd(r * r);
y1 = rnd(e6 * r + e5); y2 = rnd(e4 * r + e3); y3 = rnd(y1 * r2 + y2); y4 = rnd(e2 * r + e1); y = rnd(y3 * r2 + y4);
Y = ((e6 * r + e5) * (r * r) + (e4 * r + e3)) * (r * r) + (e2 * r + e1);
S = r + d; s = rnd(S);
{ r in [%s,%s] /\\ d in [-%s,%s] -> (1 + y * s) - (1 + Y * S) in ? }
(1 + y * s) - (1 + Y * S) -> (y - Y) * s + Y * (s - S);
''' % (names, '-' + up(-a) if a < 0 else '0', up(b), up(D), up(D))
    open(sys.argv[2], 'w').write(script)
    out = subprocess.run(['gappa', sys.argv[2]], capture_output=True, text=True)
    m = re.search(r'in \[(\S+?)(?: \{.*?\})?, (\S+?)(?: \{.*?\})?(?:,.*)?\]', out.stdout + out.stderr)
    def num(s):
        m, _, e = s.partition('b'); return F(int(m)) * F(2)**int(e or 0)
    if not m: sys.exit('no bound of Gappa: ' + out.stdout + out.stderr)
    return max(abs(num(m.group(1))), abs(num(m.group(2))))
worst = F(0)
# for r just above 0 the result may lie below 1, where an ulp is half as large
for a, b, ulp, most in ((F(0), F(1, 2**20), F(1, 2**24), F(3, 2)), (-R, F(0), F(1, 2**24), 1), (F(0), R, F(1, 2**23), F(3, 2))):
    parts = gappa(a, b), approximation(a, b), reduction * most
    worst = max(worst, sum(parts) / ulp + F(1, 2))
    print('rounding %.3f, approximation %.3f, reduction %.3f, last rounding 0.5 ulp' % tuple(float(p / ulp) for p in parts))
print('exp within %.3f ulp' % float(worst))
sys.exit(worst > LIMIT)
