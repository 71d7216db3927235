// graphile-worker: a local queue of 500 and completions in batches, as its page on performance advises for throughput.
// W8: a queue for each bucket, whose jobs it performs one after another.

export default ({ require, payload, bucket, tomorrow }) => {
  const { run, makeWorkerUtils, Logger } = require('graphile-worker')
  const logger = new Logger(() => () => {})

  return {
    async install (url) {
      const utils = await makeWorkerUtils({ connectionString: url, logger })
      await utils.migrate()
      await utils.release()
    },

    async producer (url) {
      const utils = await makeWorkerUtils({ connectionString: url, maxPoolSize: 1, logger })
      const many = (numbers, about) =>
        utils.addJobs(numbers.map(number => ({ identifier: 'noop', payload: payload(number), ...about(number) })))
      return {
        one: number => utils.addJob('noop', payload(number)),
        many: numbers => many(numbers, () => ({})),
        later: numbers => many(numbers, () => ({ runAt: tomorrow() })),
        limited: numbers => many(numbers, number => ({ queueName: bucket(number) }))
      }
    },

    async work (url, handle, concurrency) {
      const worker = {
        connectionString: url,
        concurrentJobs: concurrency,
        maxPoolSize: concurrency + 2,
        localQueue: { size: 500 },
        completeJobBatchDelay: 0,
        failJobBatchDelay: 0,
        logger
      }
      const taskList = { noop: async args => { handle(args.id) } }
      await run({ taskList, noHandleSignals: true, preset: { worker } })
    }
  }
}
