// ort.js: ONNX Runtime as a process of its own, driven by ort.c over a pipe, one line a command:
//   load id=.. op=.. folder=.. batch=.. ...      builds a model for this case, reads its tensors     -> ok | no <why>
//   time id=.. calls=.. cpu=0|1                  runs it so often                                     -> seconds <s>
//   fetch id=..                                  writes folder/out.f32                                -> ok
//   free id=.. | clear                           drops a session; the tensors of a case               -> ok
// Models are written as protobuf here, so nothing but the package onnxruntime-node is needed.
// node ort.js <folder with node_modules> <threads> [avx2]
'use strict';
const fs = require('fs'), path = require('path'), readline = require('readline');
const [peers, threadsText, isa] = process.argv.slice(2);
const threads = Number(threadsText);

// ONNX Runtime has no switch against AVX-512. For the run that compares AVX2 with AVX2, a copy of the library gets one
// answer changed: the instruction that asks which registers the system saves (xgetbv) becomes "push 7, pop rax".
function withoutAvx512(from, to) {
    const asked = Buffer.from([0x31, 0xC9, 0x0F, 0x01, 0xD0]), told = Buffer.from([0x31, 0xC9, 0x6A, 0x07, 0x58]);
    const bin = path.join('bin', 'napi-v6', process.platform, process.arch);
    const lib = path.join(to, bin, 'libonnxruntime.so.1');
    if (process.platform !== 'linux' || process.arch !== 'x64') throw new Error('cannot be kept from AVX-512 here');
    if (fs.existsSync(to + '/done')) return;
    fs.rmSync(to, { recursive: true, force: true });
    fs.mkdirSync(to, { recursive: true });
    for (const part of ['dist', 'package.json', bin])
        fs.cpSync(path.join(from, part), path.join(to, part), { recursive: true });
    const bytes = fs.readFileSync(lib);
    let n = 0;
    for (let at = bytes.indexOf(asked); at >= 0; at = bytes.indexOf(asked, at + 1), n++) told.copy(bytes, at);
    if (!n) throw new Error('cannot be kept from AVX-512: the place was not found');
    fs.writeFileSync(lib, bytes);
    fs.writeFileSync(to + '/done', '');
}

let binding, Tensor;
function start() {
    let ort = path.resolve(peers, 'node_modules/onnxruntime-node');
    if (!fs.existsSync(ort)) throw new Error('not installed (npm package onnxruntime-node)');
    if (isa === 'avx2') {
        const copy = path.resolve(peers, 'avx2/node_modules/onnxruntime-node');
        withoutAvx512(ort, copy);
        ort = copy;
    }
    ({ Tensor } = require(path.resolve(peers, 'node_modules/onnxruntime-common')));
    const b = require(path.join(ort, 'dist/binding.js'));
    b.initOrt();
    binding = b.binding;
    return JSON.parse(fs.readFileSync(path.join(ort, 'package.json'))).version;
}

const raw = a => Buffer.from(a.buffer, a.byteOffset, a.byteLength);

// ---- protobuf ---------------------------------------------------------------------------------------------------
function varint(n) {
    const out = [];
    for (let b = BigInt.asUintN(64, BigInt(n)); ; b >>= 7n) {
        if (b < 128n) { out.push(Number(b)); return Buffer.from(out); }
        out.push(Number(b & 127n) | 128);
    }
}
const int = (field, n) => Buffer.concat([varint(field << 3), varint(n)]);
const bytes = (field, b) => Buffer.concat([varint(field << 3 | 2), varint(b.length), b]);
const text = (field, s) => bytes(field, Buffer.from(s));
const float = (field, x) => Buffer.concat([varint(field << 3 | 5), raw(Float32Array.of(x))]);
const message = (field, ...parts) => bytes(field, Buffer.concat(parts));
const FLOAT = 1, INT32 = 6, INT64 = 7;

function attribute(name, value) {
    if (Array.isArray(value)) return message(5, text(1, name), ...value.map(x => int(8, x)), int(20, 7));
    if (name === 'scale') return message(5, text(1, name), float(2, value), int(20, 1));
    return message(5, text(1, name), int(3, value), int(20, 2));
}
function node(op, inputs, outputs, attributes = {}, domain = '') {
    return message(1, ...inputs.map(x => text(1, x)), ...outputs.map(x => text(2, x)), text(4, op),
        ...Object.entries(attributes).map(([k, v]) => attribute(k, v)), ...(domain ? [text(7, domain)] : []));
}
const constant = (name, type, dims, data) =>
    message(5, ...dims.map(d => int(1, d)), int(2, type), text(8, name), bytes(9, data));
const value = (field, name, type, dims) => message(field, text(1, name),
    message(2, message(1, int(1, type), message(2, ...dims.map(d => message(1, int(1, d)))))));

// ---- one case ---------------------------------------------------------------------------------------------------
const MS = 'com.microsoft', sessions = new Map(), cache = new Map();

function read(folder, name) {
    if (!cache.has(name)) {
        const b = fs.readFileSync(path.join(folder, name + '.f32'));
        cache.set(name, new Float32Array(b.buffer, b.byteOffset, b.length / 4));
    }
    return cache.get(name);
}

// [batch][rows][heads][dim] to [batch][heads][rows][dim]
function headsFirst(x, batch, rows, heads, dim, name) {
    const key = name + ' heads first';
    if (cache.has(key)) return cache.get(key);
    const y = new Float32Array(x.length);
    for (let b = 0; b < batch; b++) for (let i = 0; i < rows; i++) for (let h = 0; h < heads; h++) {
        const from = ((b * rows + i) * heads + h) * dim;
        y.set(x.subarray(from, from + dim), ((b * heads + h) * rows + i) * dim);
    }
    cache.set(key, y);
    return y;
}

function turned(w, rows, columns, offset) {                  // [rows][columns] to [columns][rows]
    const y = new Float32Array(rows * columns);
    for (let r = 0; r < rows; r++) for (let c = 0; c < columns; c++) y[c * rows + r] = w[offset + r * columns + c];
    return y;
}

// window and lengths as an additive mask [entries][1][n_q][n_k]
function maskOf(c) {
    const entries = c.lengths ? c.batch : 1, m = new Float32Array(entries * c.n_q * c.n_k);
    for (let b = 0, at = 0; b < entries; b++) for (let i = 0; i < c.n_q; i++) for (let j = 0; j < c.n_k; j++, at++) {
        const seen = (!c.lengths || j < c.lengths[b]) && (!c.left || j > i - c.left) && (!c.right || j < i + c.right) &&
            (!c.causal || j <= i);
        m[at] = seen ? 0 : -Infinity;
    }
    return { data: m, dims: [entries, 1, c.n_q, c.n_k] };
}

function load(c) {
    const { folder, batch, heads, kv, n_q, n_k, dim, layer } = c, wide = heads * dim, narrow = kv * dim, d = wide;
    const nodes = [], constants = [], inputs = [], outputs = [], feeds = {}, fetches = {};
    const feed = (name, type, dims, data) => {
        inputs.push(value(11, name, type, dims));
        feeds[name] = new Tensor(type === FLOAT ? 'float32' : 'int32', data, dims);
        return name;
    };
    const give = (name, dims, data) => {
        outputs.push(value(12, name, FLOAT, dims));
        fetches[name] = new Tensor('float32', data || new Float32Array(dims.reduce((a, b) => a * b, 1)), dims);
    };
    const shape = (name, dims) => {
        constants.push(constant(name, INT64, [dims.length], raw(BigInt64Array.from(dims.map(BigInt)))));
        return name;
    };
    const gemm = (x, w, offset, b, bOffset, to) => {         // to = x W^T + b
        constants.push(constant(to + '_w', FLOAT, [d, d], raw(w.subarray(offset, offset + d * d))));
        constants.push(constant(to + '_b', FLOAT, [d], raw(b.subarray(bOffset, bOffset + d))));
        nodes.push(node('Gemm', [x, to + '_w', to + '_b'], [to], { transB: 1 }));
        return to;
    };
    const project = (x, i) => {
        const to = 'qkv'[i];
        gemm(x, read(folder, 'w_in'), i * d * d, read(folder, 'b_in'), i * d, to + '2');
        nodes.push(node('Reshape', [to + '2', shape(to + '_to', [1, n_q, d])], [to]));
        return to;
    };
    const finish = (from, outDims) => {
        if (!layer) { give(from, outDims); return; }
        nodes.push(node('Reshape', [from, shape('o_to', [n_q, d])], ['o2']));
        gemm('o2', read(folder, 'w_o'), 0, read(folder, 'b_o'), 0, 'y');
        give('y', [n_q, d]);
    };
    const cached = (name, rows) =>
        headsFirst(read(folder, name).subarray(0, batch * rows * narrow), batch, rows, kv, dim, name + rows);

    const masked = c.mask > 0 || c.left > 0 || c.right > 0, scale = 1 / Math.sqrt(dim);
    let q, k, v, mask = '';
    if (layer) feed('x', FLOAT, [n_q, d], read(folder, 'x'));
    if (layer === 1 && c.op === 'attention') {               // the contrib operator with the projections inside
        constants.push(constant('w', FLOAT, [d, 3 * d], raw(turned(read(folder, 'w_in'), 3 * d, d, 0))));
        constants.push(constant('b', FLOAT, [3 * d], raw(read(folder, 'b_in'))));
        nodes.push(node('Reshape', ['x', shape('x_to', [1, n_q, d])], ['x3']));
        nodes.push(node('Attention', ['x3', 'w', 'b'], ['o'], { num_heads: heads }, MS));
        finish('o');
    } else if (c.op === 'gqa') {
        const step = n_q === 1;
        const window = c.causal && c.left && !c.right && !c.mask;
        if (masked && !window || c.lengths || !(c.causal || step)) return 'no such operator';
        if (layer && layer !== 3) return 'no such operator';
        q = layer ? project('x', 0) : feed('q', FLOAT, [batch, n_q, wide], read(folder, 'q'));
        if (layer) { k = project('x', 1); v = project('x', 2); }
        else {                                               // the step's own row is new, the others are cached
            const last = x => step ? read(folder, x).slice((n_k - 1) * narrow, n_k * narrow) : read(folder, x);
            if (step && batch > 1) return 'not written';
            k = feed('k', FLOAT, [batch, n_q, narrow], last('k'));
            v = feed('v', FLOAT, [batch, n_q, narrow], last('v'));
        }
        const room = [batch, kv, n_k, dim];                  // past and present share a buffer
        const pastK = step ? cached('k', n_k).slice() : new Float32Array(batch * narrow * n_k);
        const pastV = step ? cached('v', n_k).slice() : new Float32Array(batch * narrow * n_k);
        feed('past_k', FLOAT, room, pastK);
        feed('past_v', FLOAT, room, pastV);
        feed('last', INT32, [batch], new Int32Array(batch).fill(n_k - 1));
        feed('total', INT32, [1], Int32Array.of(n_k));
        nodes.push(node('GroupQueryAttention', [q, k, v, 'past_k', 'past_v', 'last', 'total'], ['o', 'now_k', 'now_v'],
            { num_heads: heads, kv_num_heads: kv, scale, ...(c.left ? { local_window_size: c.left } : {}) }, MS));
        finish('o', [batch, n_q, wide]);
        give('now_k', room, pastK);
        give('now_v', room, pastV);
    } else if (c.op === 'mha') {
        if (kv !== heads) return 'no such operator';
        q = layer ? project('x', 0) : feed('q', FLOAT, [batch, n_q, wide], read(folder, 'q'));
        if (layer === 1) { k = project('x', 1); v = project('x', 2); }
        else if (layer === 3) {                              // past and present: the operator copies the cache
            k = project('x', 1);
            v = project('x', 2);
            feed('past_k', FLOAT, [batch, heads, n_k - 1, dim], cached('k', n_k - 1));
            feed('past_v', FLOAT, [batch, heads, n_k - 1, dim], cached('v', n_k - 1));
        } else if (n_q === 1) {                              // the layout a cache would have
            k = feed('k', FLOAT, [batch, heads, n_k, dim], cached('k', n_k));
            v = feed('v', FLOAT, [batch, heads, n_k, dim], cached('v', n_k));
        } else {
            k = feed('k', FLOAT, [batch, n_k, narrow], read(folder, 'k'));
            v = feed('v', FLOAT, [batch, n_k, narrow], read(folder, 'v'));
        }
        const past = layer === 3, ins = [q, k, v, '', '', '', past ? 'past_k' : '', past ? 'past_v' : ''];
        if (c.lengths) ins[4] = feed('padding', INT32, [batch], Int32Array.from(c.lengths));
        if (c.mask) ins[5] = feed('mask', FLOAT, [c.mask, 1, n_q, n_k], read(folder, 'mask'));
        else if (masked) { const m = maskOf(c); ins[5] = feed('mask', FLOAT, m.dims, m.data); }
        while (ins[ins.length - 1] === '') ins.pop();
        nodes.push(node('MultiHeadAttention', ins, past ? ['o', 'now_k', 'now_v'] : ['o'],
            { num_heads: heads, scale, ...(c.causal && !masked ? { unidirectional: 1 } : {}) }, MS));
        finish('o', [batch, n_q, wide]);
        if (past) for (const x of ['now_k', 'now_v']) give(x, [batch, heads, n_k, dim]);
    } else {                                                 // Attention of the standard, opset 23
        const four = n_q === 1;
        if (layer) return 'no such operator';
        q = feed('q', FLOAT, four ? [batch, heads, 1, dim] : [batch, n_q, wide], read(folder, 'q'));
        const dims = four ? [batch, kv, n_k, dim] : [batch, n_k, narrow];
        k = feed('k', FLOAT, dims, four ? cached('k', n_k) : read(folder, 'k'));
        v = feed('v', FLOAT, dims, four ? cached('v', n_k) : read(folder, 'v'));
        if (c.mask) mask = feed('mask', FLOAT, [c.mask, 1, n_q, n_k], read(folder, 'mask'));
        else if (masked || c.lengths) { const m = maskOf(c); mask = feed('mask', FLOAT, m.dims, m.data); }
        nodes.push(node('Attention', mask ? [q, k, v, mask] : [q, k, v], ['o'],
            { scale, ...(four ? {} : { q_num_heads: heads, kv_num_heads: kv }),
                ...(c.causal && !masked ? { is_causal: 1 } : {}) }));
        finish('o', four ? [batch, heads, 1, dim] : [batch, n_q, wide]);
    }

    const model = Buffer.concat([int(1, 10), message(8, text(1, ''), int(2, 23)), message(8, text(1, MS), int(2, 1)),
        message(7, ...nodes, text(2, 'case'), ...constants, ...inputs, ...outputs)]);
    const session = new binding.InferenceSession();
    session.loadModel(model.buffer, model.byteOffset, model.length, {
        intraOpNumThreads: threads, interOpNumThreads: 1, graphOptimizationLevel: 'all', logSeverityLevel: 3,
        // its threads spin while it works, and must not while others do
        extra: { session: { force_spinning_stop: '1' } },
    });
    const first = layer ? 'y' : 'o';
    sessions.set(c.id, { session, feeds, fetches, out: fetches[first], folder });
    session.run(feeds, fetches, {});
    return '';
}

// id -1: what a call costs that computes nothing
function loadEmpty() {
    const model = Buffer.concat([int(1, 10), message(8, text(1, ''), int(2, 23)), message(7,
        node('Identity', ['x'], ['y']), text(2, 'empty'), value(11, 'x', FLOAT, [1]), value(12, 'y', FLOAT, [1]))]);
    const session = new binding.InferenceSession();
    session.loadModel(model.buffer, model.byteOffset, model.length, { intraOpNumThreads: 1, interOpNumThreads: 1 });
    const one = () => new Tensor('float32', new Float32Array(1), [1]);
    sessions.set(-1, { session, feeds: { x: one() }, fetches: { y: one() } });
}

// ---- the pipe ---------------------------------------------------------------------------------------------------
function answer(line) {
    const [command, ...words] = line.trim().split(' '), c = {};
    for (const w of words) {
        const at = w.indexOf('='), name = w.slice(0, at), rest = w.slice(at + 1);
        if (name === 'folder' || name === 'op') c[name] = rest;
        else c[name] = name === 'lengths' ? rest.split(',').map(Number) : Number(rest);
    }
    const s = sessions.get(c.id);
    switch (command) {
    case 'load': { const why = load(c); return why ? 'no ' + why : 'ok'; }
    case 'time': {
        const { session, feeds, fetches } = s, used = process.cpuUsage(), from = process.hrtime.bigint();
        for (let i = 0; i < c.calls; i++) session.run(feeds, fetches, {});
        const time = Number(process.hrtime.bigint() - from) * 1e-9, { user, system } = process.cpuUsage(used);
        return 'seconds ' + (c.cpu ? (user + system) * 1e-6 : time);
    }
    case 'fetch': fs.writeFileSync(path.join(s.folder, 'out.f32'), raw(s.out.data)); return 'ok';
    case 'free': if (s) s.session.dispose(); sessions.delete(c.id); return 'ok';
    case 'clear': cache.clear(); return 'ok';
    default: return 'no such command';
    }
}

let hello;
try { hello = 'ok ' + start(); loadEmpty(); } catch (e) { hello = 'no ' + e.message.split('\n')[0]; }
process.stdout.write(hello + '\n');
if (hello.startsWith('no')) process.exit(0);
readline.createInterface({ input: process.stdin }).on('line', line => {
    let reply;
    try { reply = answer(line); } catch (e) { reply = 'no ' + String(e.message || e).split('\n')[0]; }
    process.stdout.write(reply + '\n');
}).on('close', () => process.exit(0));
