// node wasi.js program.wasm arguments...: runs a wasm32-wasi program.
// Two faults of node 20 abort programs with many calls: it frees the WASI object during the program, hence the global
// name, and a fast call of the system interface may collect garbage.
require('node:v8').setFlagsFromString('--no-turbo-fast-api-calls');
const { WASI } = require('node:wasi');
const wasi = new WASI({ version: 'preview1', args: process.argv.slice(2), returnOnExit: true });
globalThis.wasi = wasi;
const program = new WebAssembly.Module(require('fs').readFileSync(process.argv[2]));
process.exitCode = wasi.start(new WebAssembly.Instance(program, wasi.getImportObject()));
