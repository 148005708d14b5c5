// node wasi.js program.wasm arguments...: runs a wasm32-wasi program.
const { WASI } = require('node:wasi');
const wasi = new WASI({ version: 'preview1', args: process.argv.slice(2), returnOnExit: true });
const program = new WebAssembly.Module(require('fs').readFileSync(process.argv[2]));
process.exitCode = wasi.start(new WebAssembly.Instance(program, wasi.getImportObject()));
