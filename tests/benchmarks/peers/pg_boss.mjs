// pg-boss: ten loops that take up to 500 jobs each and look every half second, the shortest that it allows; it has no
// notifications. So its latency is half a second at most, and ten thousand jobs a second are its bound.
// W8: a queue of the policy "singleton", which has one active job for each key.

export default ({ require, payload, bucket, tomorrow }) => {
  const PgBoss = require('pg-boss')

  const open = async (url, max) => {
    const boss = new PgBoss({ connectionString: url, max })
    boss.on('error', error => console.error(error))
    return boss.start()
  }

  return {
    async install (url) {
      const boss = await open(url, 2)
      await boss.createQueue('noop')
      await boss.createQueue('limited', { policy: 'singleton' })
      await boss.stop({ graceful: false })
    },

    async producer (url) {
      const boss = await open(url, 1)
      const many = (name, numbers, about) =>
        boss.insert(numbers.map(number => ({ name, data: payload(number), ...about(number) })))
      return {
        one: number => boss.send('noop', payload(number)),
        many: numbers => many('noop', numbers, () => ({})),
        later: numbers => many('noop', numbers, () => ({ startAfter: tomorrow() })),
        limited: numbers => many('limited', numbers, number => ({ singletonKey: bucket(number) }))
      }
    },

    async work (url, handle, concurrency) {
      const boss = await open(url, concurrency)
      const settings = { batchSize: 500, pollingIntervalSeconds: 0.5 }
      const perform = async jobs => { for (const job of jobs) handle(job.data.id) }
      for (let loop = 0; loop < concurrency; loop++) await boss.work('noop', settings, perform)
      for (let loop = 0; loop < concurrency; loop++) await boss.work('limited', settings, perform)
    }
  }
}
