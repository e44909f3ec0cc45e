// Speed of npm's aws-kinesis-agg in its native form (base64 text in, base64 text out; aggregation takes and gives
// buffers), for `cargo xtask bench formats`. One JSON line per case: name, mb_per_s (10^6 bytes of the aggregate),
// records_per_s, both of the best round.
'use strict';
const { randomBytes } = require('crypto');
const agg = require('aws-kinesis-agg');

const SECONDS = process.argv.includes('--quick') ? 1 : 4;

function shape(name, payloadLength, count) {
  const records = [];
  for (let i = 0; i < count; i++) {
    records.push({ partitionKey: `sensor-${10000 + (i * 7) % 16}`, data: randomBytes(payloadLength) });
  }
  return { name, records };
}

function aggregate(records) {
  const aggregator = new agg.RecordAggregator();
  for (const record of records) aggregator.addUserRecord(record);
  return aggregator.build().data;
}

function measure(name, bytes, count, run) {
  let best = Infinity;
  const end = process.hrtime.bigint() + BigInt(SECONDS * 1e9);
  while (process.hrtime.bigint() < end) {
    const start = process.hrtime.bigint();
    run();
    best = Math.min(best, Number(process.hrtime.bigint() - start) / 1e9);
  }
  console.log(JSON.stringify({ name, mb_per_s: bytes / best / 1e6, records_per_s: count / best }));
}

for (const { name, records } of [shape('100b', 100, 480), shape('1kb', 1024, 870)]) {
  const data = aggregate(records);
  const record = { data: data.toString('base64'), partitionKey: 'k', sequenceNumber: '1' };
  measure(`deagg_${name}`, data.length, records.length, () => {
    agg.deaggregateSync(record, true, (error, userRecords) => {
      if (error) throw error;
      if (userRecords.length !== records.length) throw new Error(`${userRecords.length} records`);
    });
  });
  measure(`aggregate_${name}`, data.length, records.length, () => aggregate(records));
}
