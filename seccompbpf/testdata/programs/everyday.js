// Threads, processes, sockets and files of Node. Prints "fine" at the end.
const { Worker, isMainThread, parentPort } = require('worker_threads');
const { execFileSync, fork } = require('child_process');
const crypto = require('crypto');
const fs = require('fs');
const http = require('http');
const os = require('os');
const path = require('path');
const zlib = require('zlib');

if (process.argv[2] === 'child') {
  process.send('hello');
} else if (!isMainThread) {
  parentPort.postMessage(6 * 7);
} else {
  main().catch((e) => { console.error(e); process.exit(1); });
}

async function main() {
  const dir = fs.mkdtempSync(path.join(os.tmpdir(), 'node-'));
  await fs.promises.writeFile(path.join(dir, 'f'), 'text', { mode: 0o755 });
  await fs.promises.chmod(path.join(dir, 'f'), 0o644);
  fs.watch(dir).close();
  os.networkInterfaces();
  zlib.gzipSync(crypto.randomBytes(1000));

  if (execFileSync('echo', ['hi']).toString() !== 'hi\n') throw new Error('echo');
  const answer = await new Promise((ok, no) => new Worker(__filename).on('message', ok).on('error', no));
  if (answer !== 42) throw new Error('worker');
  const word = await new Promise((ok, no) => fork(__filename, ['child']).on('message', ok).on('error', no));
  if (word !== 'hello') throw new Error('fork');

  const server = http.createServer((_, res) => res.end('page')).listen(0, '127.0.0.1');
  await new Promise((ok) => server.on('listening', ok));
  const page = await fetch(`http://127.0.0.1:${server.address().port}/`).then((r) => r.text());
  if (page !== 'page') throw new Error('http');
  fs.rmSync(dir, { recursive: true });
  console.log('fine');
  process.exit(0);
}
