// Runs one JavaScript adapter, as host.py does a Python one: node host.mjs PEER TASK URL …
//
// An adapter is a function of what it needs (`require` for its packages, `payload`, `bucket`, `tomorrow`); it answers an
// object with install(url), producer(url) and work(url, handle, concurrency).

import fs from 'node:fs'
import readline from 'node:readline'
import { createRequire } from 'node:module'

const BUCKETS = 1000
const ENTRY = 24 // bytes, as in records.py: number + 1, began, ended
const LATER = 24 * 60 * 60 * 1000

const require = createRequire(process.env.BENCHMARK_PACKAGES)
const bucket = number => `user-${String(number % BUCKETS).padStart(3, '0')}@example.com`
const payload = number => ({ id: number, to: bucket(number), subject: 'Welcome aboard', body: 'x'.repeat(24) })
const tomorrow = () => new Date(Date.now() + LATER)
const sleep = milliseconds => new Promise(resolve => setTimeout(resolve, milliseconds))
const now = () => process.hrtime.bigint() // of the clock that Python calls monotonic
const secondsSince = began => Number(now() - began) / 1e9

const [peer, task, url, ...rest] = process.argv.slice(2)
const adapter = (await import(`./peers/${peer}.mjs`)).default({ require, payload, bucket, tomorrow })

switch (task) {
  case 'install':
    await adapter.install(url)
    break
  case 'work':
    await work(...rest)
    break
  case 'produce':
    await produce()
    break
}
process.exit(0)

async function work (records, ready, go, concurrency, hold) {
  const handle = recorder(records, Number(hold) * 1000)
  fs.writeFileSync(ready, '')
  while (!fs.existsSync(go)) await sleep(1)
  await adapter.work(url, handle, Number(concurrency))
  await new Promise(() => {}) // an adapter may return once its workers run
}

// Notes are kept here and written every few milliseconds: a system call for each would be measured as well.
function recorder (file, hold) {
  const notes = Buffer.alloc(ENTRY * 50_000)
  const descriptor = fs.openSync(file, 'a')
  const nobody = new Int32Array(new SharedArrayBuffer(4))
  let used = 0
  const write = () => {
    if (used) fs.writeSync(descriptor, notes, 0, used)
    used = 0
  }
  setInterval(write, 10)
  return number => {
    const began = now()
    if (hold) Atomics.wait(nobody, 0, 0, hold)
    notes.writeBigUInt64LE(BigInt(number + 1), used)
    notes.writeBigUInt64LE(began, used + 8)
    notes.writeBigUInt64LE(now(), used + 16)
    used += ENTRY
    if (used === notes.length) write()
  }
}

async function produce () {
  const producer = await adapter.producer(url)
  for await (const line of readline.createInterface({ input: process.stdin })) {
    fs.writeSync(1, JSON.stringify(await enqueue(producer, JSON.parse(line))) + '\n')
  }
}

async function enqueue (producer, { do: what, ranges, chunk, gap }) {
  const numbers = ranges.flatMap(([start, stop, step]) =>
    Array.from({ length: Math.ceil((stop - start) / step) }, (_, place) => start + place * step))
  const began = now()
  if (what === 'one') {
    for (const number of numbers) await producer.one(number)
  } else if (what === 'paced') {
    return { commits: await paced(producer, numbers, gap) }
  } else {
    const size = chunk || numbers.length
    for (let start = 0; start < numbers.length; start += size) await producer[what](numbers.slice(start, start + size))
  }
  return { seconds: secondsSince(began) }
}

async function paced (producer, numbers, gap) {
  const commits = []
  const start = now()
  for (const [place, number] of numbers.entries()) {
    await sleep(Math.max(0, place * gap - secondsSince(start)) * 1000)
    const before = now()
    await producer.one(number)
    commits.push([number, Number(before), Number(now())])
  }
  return commits
}
