// npm's aws-kinesis-agg, as tests/peers_kpl.rs talks to it. One JSON line in, one out; see kpl.py.
'use strict';
const path = require('path');
const readline = require('readline');
const agg = require(path.join(process.env.PEERS_NODE_MODULES, 'aws-kinesis-agg'));

function decode(data) {
  const found = [];
  // It only looks at the base64 text of the data.
  agg.deaggregateSync({ data, partitionKey: 'outer', sequenceNumber: '1' }, true, (error, records) => {
    if (error) throw error;
    for (const r of records) found.push([r.partitionKey, r.explicitPartitionKey ?? null, r.data]);
  });
  return found;
}

function encode(records) {
  const aggregator = new agg.RecordAggregator();
  for (const [partitionKey, explicitHashKey, data] of records) {
    const record = { partitionKey, data: Buffer.from(data, 'base64') };
    if (explicitHashKey !== null) record.explicitHashKey = explicitHashKey;
    aggregator.addUserRecord(record);
  }
  return aggregator.build().data.toString('base64');
}

readline.createInterface({ input: process.stdin }).on('line', (line) => {
  const { data, records } = JSON.parse(line);
  process.stdout.write(JSON.stringify({ records: decode(data), data: encode(records) }) + '\n');
});
