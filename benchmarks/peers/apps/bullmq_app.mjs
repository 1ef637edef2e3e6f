// BullMQ and bunqueue, which has the same interface: one worker, 100 jobs at a time, no finished jobs kept.
// `bulk|callers|one|idle NUMBER` as `driver.py` has them, or `work`, which counts as `counting.py` does.
import { openSync, writeSync, writeFileSync } from 'node:fs';

const [what, number] = [process.argv[2], Number(process.argv[3])];
const isBun = process.env.BUNQUEUE === '1';
const { Queue, Worker } = await import(isBun ? 'bunqueue/client' : 'bullmq');
const text = 'x'.repeat(100);
const seconds = () => (performance.timeOrigin + performance.now()) / 1e3; // the same clock in all processes

function options() {
  if (isBun) return { connection: { host: '127.0.0.1', port: Number(process.env.BUNQUEUE_PORT) } };
  const url = new URL(process.env.REDIS_URL);
  return { connection: { host: url.hostname, port: Number(url.port), maxRetriesPerRequest: null } };
}

const queue = what === 'work' ? null : new Queue('noop', options());
const add = (data) => queue.add('noop', data, { removeOnComplete: true });

async function bulk() {
  const began = seconds();
  for (let left = number; left > 0; left -= 1000) {
    const job = { name: 'noop', data: { text }, opts: { removeOnComplete: true } };
    await queue.addBulk(Array(Math.min(left, 1000)).fill(job));
  }
  return number / (seconds() - began);
}

async function callers() {
  await add({ text });
  const began = seconds();
  const caller = async () => { for (let left = number / 10; left > 0; left -= 1) await add({ text }); };
  await Promise.all(Array.from({ length: 10 }, caller));
  return number / (seconds() - began);
}

async function one() {
  const times = [];
  for (let left = number; left > 0; left -= 1) {
    const began = seconds();
    await add({ text });
    times.push(seconds() - began);
  }
  return times.sort((a, b) => a - b)[Math.floor(number / 2)] * 1e6;
}

async function idle() {
  for (let left = number; left > 0; left -= 1) {
    await new Promise((resolve) => setTimeout(resolve, 5));
    await add({ text: `at:${seconds()}` });
  }
  return number;
}

async function work() {
  const [file, word] = [openSync(process.env.STOKER_COUNTER, 'r+'), Buffer.alloc(8)];
  let done = 0n;
  const handler = async (job) => {
    if (job.data.text.startsWith('at:')) {
      const taken = Buffer.alloc(8);
      taken.writeDoubleLE(seconds() - Number(job.data.text.slice(3)));
      writeFileSync(process.env.STOKER_LATENCIES, taken, { flag: 'a' });
    }
    done += 1n;
    word.writeBigUInt64LE(done);
    writeSync(file, word, 0, 8, 0);
  };
  new Worker('noop', handler, { ...options(), concurrency: 100 });
  await new Promise(() => {});
}

console.log(await { bulk, callers, one, idle, work }[what]());
process.exit(0);
