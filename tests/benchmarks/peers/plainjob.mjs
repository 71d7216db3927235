// plainjob on better-sqlite3: one worker that performs one job at a time, which is its only way; when
// idle it looks every 10 ms, for it has no notifications. It sets synchronous to NORMAL, so it does not wait for the disk.

export default ({ require, payload }) => {
  const Database = require('better-sqlite3')
  const { better, defineQueue, defineWorker } = require('plainjob')
  const logger = { error: console.error, warn () {}, info () {}, debug () {} }

  const open = url =>
    defineQueue({ connection: better(new Database(url.replace('sqlite:///', ''), { timeout: 5000 })), logger })

  return {
    async install (url) {
      open(url).close()
    },

    async producer (url) {
      const queue = open(url)
      return {
        one: async number => queue.add('noop', payload(number)),
        many: async numbers => queue.addMany('noop', numbers.map(payload)),
        later: async numbers => queue.addMany('noop', numbers.map(payload), { delay: 24 * 60 * 60 * 1000 })
      }
    },

    async work (url, handle) {
      const perform = async job => { handle(JSON.parse(job.data).id) }
      defineWorker('noop', perform, { queue: open(url), logger, pollIntervall: 10 }).start()
    }
  }
}
