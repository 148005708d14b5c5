"""Random calls of every operation of tests/SPEC.md, section 13, by attn_spec.py and by attn.h: the same bits.

    python3 random_calls.py build/spec/vectors             2,000 calls
    python3 random_calls.py build/spec/vectors -n 50 -s 7  fewer, another seed
    python3 random_calls.py build/spec/vectors -c 'linear rows=1 n_in=2 n_out=2 x=1:2 w=2:2'
                                                           one call: prints the first number that differs

A call is a line of the language of vectors.txt, so that one that fails can become a vector. The keys `form`, `piece`,
`threads` and `backend` (forms.h) select another way to make the same call: attn_spec.py does not read them.
"""
import argparse
import random
import subprocess
import sys

import cases

SPECIAL = ['7FC00000', 'FFC12345', '7F800000', 'FF800000', '80000000', '00000001', '807FFFFF', '00800000', '7F7FFFFF',
           'FF7FFFFF', '3F800000', 'C2AEAC50']


class Maker(random.Random):
    """Makes one call. Its seed is a string, so the same call comes from every version of Python 3."""
    def some(self, share): return self.random() < share

    def number(self, low, high):
        """A decimal that a float represents exactly."""
        return '%.6f' % (round(self.uniform(low, high) * 64) / 64)

    def tensor(self, *sizes):
        return '%d:%s' % (self.randrange(1, 1 << 20), self.choice(sizes))

    def ints(self, n, low, high):
        return ','.join(str(self.randint(low, high)) for _ in range(n))

    def poke(self, call, share, special=SPECIAL, **sizes):
        """Replaces some elements of the tensors named, of these sizes."""
        pokes = ['%s:%d:%s' % (name, self.randrange(size), self.choice(special))
                 for name, size in sizes.items() if name in call and size and self.some(share)
                 for _ in range(self.randint(1, 3))]
        if pokes: call['poke'] = ','.join(pokes)

    def how(self, call, forms):
        """Another way to make the same call."""
        if self.some(0.5): call['backend'] = self.randrange(8)
        if self.some(0.4): call['threads'] = self.randint(1, 9)
        if forms and self.some(0.7):
            call['form'] = self.choice(forms)
            call['piece'] = self.choice([1, 3, 16, 100, 128, 200])

    # ---- attention ---------------------------------------------------------------------------------------------------
    def keys(self):
        return self.choice([self.randint(0, 20), self.randint(1, 40), self.randint(100, 140), self.randint(240, 300),
                            16, 128, 256])

    def shape(self, call, rows):
        group, kv_heads = self.choice([1, 1, 2, 3]), self.choice([1, 1, 2, 3])
        call.update(n_q=rows, n_k=self.keys(), heads=group * kv_heads,
                    head_dim=self.choice([1, 2, 3, 4, 5, 8, 12, 16, 17]))
        batch = self.choice([1, 1, 2, 3])
        if batch > 1: call['batch'] = batch
        if group > 1: call['kv_heads'] = kv_heads
        if self.some(0.4): call['v_head_dim'] = self.choice([1, 3, 7, 16, 20])
        size = self.choice(['0.5', '2', '2', '4', '16'])
        call.update(q=self.tensor(size), k=self.tensor(size), v=self.tensor('1', '4', '1000'))
        return batch

    def places(self, call, batch):
        """Positions and windows."""
        n_q, n_k = call['n_q'], call['n_k']
        if self.some(0.6): call['causal'] = self.randint(1, 2)
        elif self.some(0.3): call['align'] = 1
        if self.some(0.4): call['q_pos'] = self.choice([-1, 1, self.randint(-n_q, n_k), n_k, n_k - n_q])
        if self.some(0.2): call['q_pos_each'] = self.ints(batch, -n_q, n_k)
        if self.some(0.25): call['window_left'] = self.randint(1, n_k + 2)
        if self.some(0.15): call['window_right'] = self.randint(1, n_k + 2)

    def lengths(self, call, batch, starts=True):
        n_k = call['n_k']
        if self.some(0.25): call['q_lengths'] = self.ints(batch, 0, call['n_q'])
        first = [self.choice([0, self.randint(0, n_k), min(n_k, 128)]) for _ in range(batch)]
        if starts and self.some(0.25): call['k_starts'] = ','.join(map(str, first))
        else: first = [0] * batch
        if self.some(0.3): call['k_lengths'] = ','.join(str(self.randint(0, n_k - s)) for s in first)

    def cells(self, call, name, batch, heads):
        n = call['n_k']
        if self.some(0.7):
            shape = [self.choice([1, full]) for full in (batch, heads, call['n_q'])]
            call[name + '_shape'] = ','.join(map(str, shape))
        else: shape = [1, heads if name == 'bias' else 1, call['n_q']]
        for axis in shape: n *= axis
        return n

    def terms(self, call, batch):
        """What is added to scores, or hides them. Returns the sizes of these tensors."""
        heads, sizes = call['heads'], {}
        if self.some(0.3): call['scale'] = self.number(0.1, 2)
        if self.some(0.2): call['softcap'] = self.number(0.5, 30)
        if self.some(0.25): call['alibi'] = self.tensor('0.25', '1')
        if self.some(0.2):
            call['rel_extent'] = self.choice([0, self.randint(1, 9), self.randint(10, 150)])
            call['rel_bias'] = self.tensor('2', '2', '2:5')
            sizes['rel_bias'] = heads * (2 * call['rel_extent'] + 1)
        if not call['n_k']: return sizes
        for name, share in (('mask', 0.3), ('bias', 0.25), ('keep', 0.2)):
            if self.some(share):
                seed, hide = self.randrange(1, 1 << 20), self.choice([1, 2, 3, 9])
                call[name] = '%d:%d' % (seed, hide) if name == 'keep' else '%d:2:%d' % (seed, hide)
                if name != 'keep' and self.some(0.3): call[name] = '%d:2' % seed
                sizes[name] = self.cells(call, name, batch, heads)
        sizes.pop('keep', None)                                         # bytes
        return sizes

    def stored(self, call):
        for name in ('k_storage', 'v_storage'):
            if self.some(0.2): call[name] = self.randint(1, 2)

    def eight(self, call, forms):
        """Lets a cache keep keys, values or both in 8 bits. Returns the forms that can."""
        if call['n_k'] == 0 or 'k_starts' in call or not self.some(0.3): return forms
        forms = [form for form in ('cache', 'cache_moved') if form in forms] or ['cache']
        call['k_storage'] = 3
        if 'v_in_k' in call: call.pop('v_storage', None)
        elif self.some(0.6): call['v_storage'] = 3
        elif self.some(0.4): call.update(k_storage=self.randint(0, 2), v_storage=3)
        return forms

    def sizes(self, call, batch):
        n, k = batch * call['n_q'] * call['heads'], batch * call['n_k'] * call.get('kv_heads', call['heads'])
        return {'q': n * call['head_dim'], 'k': k * call['head_dim'],
                'v': k * call.get('v_head_dim', call['head_dim']), 'sinks': call['heads'], 'alibi': call['heads']}

    def attention(self):
        call = {}
        batch = self.shape(call, self.choice([1, 1, 2, 3, 5, 8, self.randint(9, 50)]))
        step = self.some(0.12) and call['n_k'] >= call['n_q']
        if step: call['causal'] = 1
        else:
            self.places(call, batch)
            self.lengths(call, batch)
        more = self.terms(call, batch)
        if self.some(0.25): call['sinks'] = self.tensor('4')
        if self.some(0.6): call['stage'] = self.randint(0, 3)
        self.stored(call)
        cache = not step and call['n_k'] > 0 and self.cache(call)
        self.poke(call, 0.08, **self.sizes(call, batch), **more)
        forms = ['heads_first', 'strides', 'map', 'rows', 'cuts', 'fold']
        if 'k_starts' not in call:
            forms += ['ragged'] + (['cache', 'cache_moved'] if call['n_k'] else [])
            if 'mask' not in call and call['n_k'] and call.get('stage', 0) in (0, 3): forms.append('matrix')
        forms.append('some_heads')
        forms = ['step'] if step else self.eight(call, ['cache'] if cache else forms)
        if step and self.some(0.3): call.update(k_storage=3, v_storage=self.randint(0, 3), form='step')
        self.how(call, forms)
        return 'attention', call

    def cache(self, call):
        """Keys that only a cache can have. Returns 1 if the call has some."""
        n = call['n_k']
        if 'k_starts' in call or not self.some(0.2): return 0
        if n >= 128 and self.some(0.6): call['forgotten'] = self.choice(['0,128', '128,256'] if n >= 256 else ['0,128'])
        elif call.get('v_head_dim', call['head_dim']) <= call['head_dim']:
            call['v_in_k'] = 1
            call.pop('v_storage', None)
        return 1

    def states(self):
        call = {}
        batch = self.shape(call, self.randint(1, 5))
        self.places(call, batch)
        self.lengths(call, batch)
        more = self.terms(call, batch)
        self.stored(call)
        self.poke(call, 0.1, **self.sizes(call, batch), **more)
        operation = self.choice(['states', 'parts'])
        if operation == 'parts': call['parts'] = (call['n_k'] + 127) // 128 + self.randint(0, 1) or 1
        if operation == 'parts' and call['parts'] < 2: call['parts'] = 2
        forms = ['map'] if operation == 'states' else []
        self.eight(call, [])
        self.how(call, forms if 3 not in (call.get('k_storage'), call.get('v_storage')) else [])
        return operation, call

    def resume(self):
        call = {}
        batch = self.shape(call, self.randint(1, 5))
        n = call['n_k'] = max(call['n_k'], 2)
        call.update(causal=1, cut=self.choice([c for c in (128, 256, self.randint(1, n - 1)) if 0 < c < n]))
        if self.some(0.3): call['scale'] = self.number(0.1, 2)
        if self.some(0.2): call['softcap'] = self.number(0.5, 30)
        if self.some(0.4): call['alibi'] = self.tensor('0.25')
        if self.some(0.4): call['sinks'] = self.tensor('4')
        if self.some(0.3): call['window_left'] = self.randint(1, n)
        self.stored(call)
        self.poke(call, 0.1, **self.sizes(call, batch))
        self.how(call, [])
        return 'resume', call

    # ---- functions, formats, masks -----------------------------------------------------------------------------------
    def function(self):
        n = 64
        call = {'n': n, 'x': self.choice([self.tensor('0.5', '2', '20', '100'), str(self.randrange(1, 1 << 20))])}
        self.poke(call, 0.5, x=n)
        operation = self.choice(['exp', 'log', 'tanh', 'narrow'])
        if operation == 'narrow': call['format'] = self.randint(1, 2)
        return operation, call

    def merge(self):
        batch, n_q, n_k = self.randint(1, 3), self.randint(1, 5), self.randint(1, 20)
        call = {'batch': batch, 'n_q': n_q, 'n_k': n_k, 'mask': self.tensor('2', '2:3'), 'by': self.tensor('2', '2:3')}
        by = call['by_batch'] = self.choice([1, batch])
        self.poke(call, 0.5, mask=batch * n_q * n_k, by=by * n_q * n_k)
        return 'mask_merge', call

    def shift(self):
        n, columns = self.randint(1, 9), self.randint(1, 12)
        call = {'matrices': self.randint(1, 3), 'n_q': n, 'n_k': self.randint(1, 12), 'columns': columns,
                'zero': self.randint(0, columns - 1), 'pos': self.randint(-9, 9), 'x': self.tensor('2', '2:3')}
        self.poke(call, 0.5, x=call['matrices'] * n * columns)
        return 'bias_shift', call

    # ---- linears, rotation, layers -----------------------------------------------------------------------------------
    def linear(self):
        rows, n_out = self.randint(1, 7), self.randint(1, 40)
        n_in = self.choice([self.randint(1, 40), self.randint(250, 260), self.randint(500, 530)])
        call = {'rows': rows, 'n_in': n_in, 'n_out': n_out, 'x': self.tensor('0.5', '2', '1000'),
                'w': self.tensor('0.25', '0.0001220703125', '64')}
        if self.some(0.6): call['b'] = self.tensor('1', '0')
        for name in ('storage', 'w_storage'):
            if self.some(0.4): call[name] = self.randint(1, 2)
        if self.some(0.4): call['storage'] = 3
        self.poke(call, 0.25, x=rows * n_in, w=n_in * n_out, b=n_out)
        return 'linear', call

    def norm(self):
        rows, n = self.randint(1, 7), self.choice([self.randint(1, 40), self.randint(100, 300)])
        call = {'kind': self.randint(0, 1), 'rows': rows, 'n': n, 'x': self.tensor('0.5', '2', '1000')}
        if self.some(0.7): call['weight'] = self.tensor('0.25', '2')
        if self.some(0.5): call['bias'] = self.tensor('1', '0')
        if self.some(0.5): call['eps'] = self.choice(['0.0009765625', '1', '0.0000152587890625'])
        self.poke(call, 0.25, x=rows * n, weight=n, bias=n)
        self.how(call, [])
        return 'norm', call

    def activate(self):
        n = self.randint(1, 300)
        call = {'kind': self.randint(0, 2), 'n': n, 'x': self.tensor('0.5', '4', '20', '200')}
        if self.some(0.5): call['gate'] = self.tensor('1', '1000')
        self.poke(call, 0.5, x=n, gate=n)
        return 'activate', call

    def builder(self):
        batch, n_q, n_k, kind = self.randint(1, 3), self.randint(1, 6), self.randint(1, 9), self.randint(0, 5)
        call = {'kind': kind, 'batch': batch, 'n_q': n_q, 'n_k': n_k}
        if kind < 2: call['pos'] = self.randint(-4, 6)
        if kind == 1: call.update(window_left=self.randint(0, 4), window_right=self.randint(0, 4))
        if kind in (2, 3, 5): call['keep'] = '%d:%d' % (self.randrange(1 << 20), self.randint(2, 4))
        if kind == 4: call['k_lengths'] = self.ints(batch, 0, n_k)
        return 'builder', call

    def base(self): return '%.3f' % 2 ** self.uniform(0, self.choice([4, 20, 20, 60]))

    def rope_table(self):
        dim = 2 * self.randint(1, 16)
        call = {'positions': self.randint(1, 30), 'rotary_dim': dim}
        if self.some(0.5): call['base'] = self.base()
        else:
            call['freqs'] = self.tensor('4', '100')
            patterns = ['%08X' % (self.randrange(0x47800000) | self.choice([0, 0x80000000])) for _ in range(4)]
            self.poke(call, 0.8, patterns, freqs=dim // 2)
        return 'rope_table', call

    def rope_freqs(self):
        kind, dim = self.randint(0, 5), 2 * self.randint(1, 48)
        call = {'kind': kind, 'rotary_dim': dim}
        if self.some(0.8): call['base'] = self.base()
        if self.some(0.8): call['factor'] = self.number(1, 64)
        if kind in (2, 3, 4): call['original'] = self.randint(2, self.choice([100, 10000, 1 << 20]))
        if kind in (2, 3) and self.some(0.4): call.update(low=self.number(0.02, 2), high=self.number(2.1, 40))
        if kind == 3 and self.some(0.3): call['untruncated'] = 1
        if kind == 3 and self.some(0.5): call['mscale'] = self.number(0.1, 2)
        if kind == 3 and self.some(0.5): call['mscale_all_dim'] = self.number(0.1, 2)
        if kind in (3, 4) and self.some(0.2): call['attention_factor'] = self.number(0.1, 2)
        if kind == 4: call['factors'] = self.tensor('1', '64', '1000')
        if kind == 5 and self.some(0.7): call['rotated'] = 2 * self.randint(0, dim // 2)
        return 'rope_freqs', call

    def rope(self):
        batch, n, dim = self.randint(1, 3), self.randint(1, 8), 2 * self.randint(1, 12)
        call = {'batch': batch, 'n': n, 'heads': self.randint(1, 3), 'head_dim': dim + self.choice([0, 0, 1, 5]),
                'rotary_dim': dim, 'x': self.tensor('2', '1000'), 'base': self.base()}
        if self.some(0.6): call['pos'] = self.randint(0, 60)
        if self.some(0.4): call['pos_each'] = self.ints(batch, -70, 50)
        if self.some(0.4): call['interleaved'] = 1
        self.poke(call, 0.5, x=batch * n * call['heads'] * call['head_dim'])
        return 'rope', call

    def t5(self):
        one_way = self.randint(0, 1)
        buckets = self.randint(2, 40) * (1 if one_way else 2) + (0 if one_way else self.randint(0, 1))
        side = buckets if one_way else buckets // 2
        call = {'buckets': buckets, 'max_distance': self.randint(side // 2 + 1, 300), 'one_way': one_way,
                'heads': self.randint(1, 3), 'extent': self.randint(0, 200), 'table': self.tensor('2')}
        self.poke(call, 0.3, table=buckets * call['heads'])
        return 't5', call

    def layer(self):
        batch, rows, kv_heads, group = self.randint(1, 3), self.randint(1, 7), self.randint(1, 2), self.randint(1, 2)
        heads, dim = kv_heads * group, 2 * self.randint(1, 6)
        call = {'rows': rows, 'batch': batch, 'd_model': self.choice([4, 11, 24, 40, 260]), 'heads': heads,
                'kv_heads': kv_heads, 'head_dim': dim, 'w': self.tensor('0.125', '0.5', '1'), 'x': self.tensor('0.5', '2')}
        memory = self.choice([0, 0, 0, self.randint(1, 9)])
        if self.some(0.3): call['v_head_dim'] = self.randint(1, 12)
        for key, share in (('bias', 0.6), ('norm', 0.4), ('v_norm', 0.2), ('w_in', 0.3)):
            if self.some(share): call[key] = 1
        if 'norm' in call:
            for key in ('norm_after_rope', 'qk_norm', 'norm_bias'):
                if self.some(0.4): call[key] = 1
            if self.some(0.5): call['norm_row'] = self.randint(1, 2)
            if self.some(0.3): call['eps'] = '0.0009765625'
        if self.some(0.3): call['gate'] = self.choice([heads, heads * call.get('v_head_dim', dim)])
        if self.some(0.4): call['storage'] = self.randint(1, 3)
        if self.some(0.2): call['scale'] = self.number(0.1, 2)
        if self.some(0.2): call['softcap'] = self.number(0.5, 30)
        if self.some(0.2): call['alibi'] = self.tensor('0.25')
        if self.some(0.2): call['sinks'] = self.tensor('4')
        if memory: self.layer_cross(call, batch, rows, memory)
        else: self.layer_self(call, batch, rows, dim)
        return 'layer', call

    def layer_self(self, call, batch, rows, dim):
        if self.some(0.5):
            call['base'] = self.base()
            if self.some(0.5): call['rotary_dim'] = 2 * self.randint(1, dim // 2)
            if self.some(0.4): call['interleaved'] = 1
        if self.some(0.2): call['factors'] = self.tensor('2')
        if self.some(0.3): call['window_left'] = self.randint(1, rows)
        if self.some(0.3):
            call['causal'] = 1
            self.how(call, ['step', 'look'])
            return
        if 'base' in call and self.some(0.3): call['rope_pos'] = self.ints(batch * rows, -1, rows - 1)
        if self.some(0.5): call['causal'] = self.randint(1, 2)
        if self.some(0.3): call['window_right'] = self.randint(1, rows)
        if self.some(0.3): call['lengths'] = self.ints(batch, 0, rows)
        elif self.some(0.3):
            first = [self.randint(0, rows) for _ in range(batch)]
            call['k_starts'] = ','.join(map(str, first))
            call['k_lengths'] = ','.join(str(rows - s) for s in first)
        if self.some(0.3): call['mean'] = 1
        self.how(call, [])

    def layer_cross(self, call, batch, rows, memory):
        call.update(memory=memory, m=self.tensor('0.5', '2'))
        if self.some(0.3): call['memory_v'] = self.tensor('0.5', '2')
        if self.some(0.5): call['k_lengths'] = self.ints(batch, 0, memory)
        self.how(call, ['step'])
        if self.some(0.3) and 'form' not in call: call['mean'] = 1

    def delta(self):
        batch, n, group, k_heads = self.randint(1, 3), self.randint(1, 12), self.randint(1, 3), self.randint(1, 2)
        if self.some(0.1): n = self.randint(30, 70)
        heads, dim, wide = group * k_heads, self.choice([1, 2, 5, 8, 33]), self.choice([1, 3, 16, 31, 40])
        call = {'batch': batch, 'n': n, 'heads': heads, 'k_heads': k_heads, 'head_dim': dim, 'v_head_dim': wide,
                'q': self.tensor('1', '4'), 'k': self.tensor('0.25', '0.5'), 'v': self.tensor('2')}
        for key, share, size in (('state', 0.7, '2'), ('g', 0.7, '1'), ('beta', 0.7, '1')):
            if self.some(share): call[key] = self.tensor(size)
        for key, share in (('rule', 0.3), ('qk_norm', 0.5), ('per', 0.5 if 'g' in call else 0)):
            if self.some(share): call[key] = 1
        if self.some(0.3): call['scale'] = self.number(0.1, 2)
        if self.some(0.3): call['norm_eps'] = '0.0009765625'
        if self.some(0.3): call['q_lengths'] = self.ints(batch, 0, n)
        self.poke(call, 0.2, q=batch * n * k_heads * dim, k=batch * n * k_heads * dim, v=batch * n * heads * wide)
        self.how(call, [])
        return 'delta', call

    def conv(self):
        batch, n, channels, width = self.randint(1, 3), self.randint(1, 9), self.randint(1, 70), self.randint(1, 5)
        if self.some(0.1): width, channels = 16, 40
        call = {'batch': batch, 'n': n, 'channels': channels, 'width': width, 'x': self.tensor('2', '8'),
                'w': self.tensor('1')}
        if self.some(0.5): call['silu'] = 1
        if self.some(0.5): call['bias'] = self.tensor('1')
        if self.some(0.7): call['state'] = self.tensor('2')
        if self.some(0.3): call['q_lengths'] = self.ints(batch, 0, n)
        self.poke(call, 0.2, x=batch * n * channels)
        self.how(call, [])
        return 'conv', call

    def call(self):
        kinds = {self.attention: 50, self.states: 8, self.resume: 6, self.layer: 12, self.linear: 6, self.norm: 3,
                 self.activate: 3, self.function: 5, self.rope_freqs: 4, self.rope: 3, self.rope_table: 3,
                 self.merge: 2, self.shift: 2, self.t5: 2, self.builder: 2, self.delta: 8, self.conv: 3}
        operation, call = self.choices(list(kinds), list(kinds.values()))[0]()
        return ' '.join([operation] + ['%s=%s' % pair for pair in call.items()])


def calls(n, seed):
    return [Maker('%s/%d' % (seed, i)).call() for i in range(n)]


def outputs(line):
    """What attn_spec.py computes for a line."""
    word = line.split()
    return cases.compute(word[0], cases.Case(w.split('=') for w in word[1:]))


def library(program, lines, key='-r'):
    """A line of each call by attn.h; fewer, and a sentence, if it rejects one."""
    run = subprocess.run(program.split() + [key], input='\n'.join(lines) + '\n', stdout=subprocess.PIPE,
                         stderr=subprocess.PIPE, universal_newlines=True, check=False)
    return [line.strip() for line in run.stdout.splitlines()], run.stderr.strip()


def compare(program, line):
    """Prints the first number that differs."""
    got, error = library(program, [line], '-d')
    if error: return print(error)
    data, at = bytes.fromhex(got[0].split()[0]), 0
    for number, x in enumerate(outputs(line)):
        size = x.itemsize if x.itemsize in (2, 4) else 4
        for i, want in enumerate(cases.bytes_of(x)[j:j + size] for j in range(0, x.size * size, size)):
            have = data[at + i * size:at + (i + 1) * size]
            if have != want:
                return print('output %d, element %d of %s: %s by attn.h, %s by attn_spec.py'
                             % (number, i, x.shape, have[::-1].hex().upper(), want[::-1].hex().upper()))
        at += x.size * size
    return print('the same bits')


def check(program, lines, seed):
    """Returns how many calls agree. Prints the others."""
    got, error = library(program, lines)
    if len(got) < len(lines): print('FAIL the program stops at call %d: %s\n     %s' % (len(got), error, lines[len(got)]))
    passed = 0
    for i, line in enumerate(lines[:len(got)]):
        want = cases.fnv(outputs(line))
        passed += want == got[i]
        if want != got[i]: print('FAIL call %d of seed %s: %s by attn.h, %s by attn_spec.py\n     %s'
                                 % (i, seed, got[i], want, line))
    return passed


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument('program')
    p.add_argument('-n', type=int, default=2000)
    p.add_argument('-s', default='1')
    p.add_argument('-c')
    a = p.parse_args()
    if a.c: return compare(a.program, a.c)
    lines = calls(a.n, a.s)
    passed = check(a.program, lines, a.s)
    print('random calls, seed %s: %d passed, %d failed' % (a.s, passed, a.n - passed))
    return int(passed != a.n)


if __name__ == '__main__':
    sys.exit(main())
