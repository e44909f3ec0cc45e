// Drives a Kinesis endpoint with the defaults of the AWS SDK for JavaScript v3: create, put, read, subscribe, reshard.
const assert = require("node:assert");
const kinesis = require("@aws-sdk/client-kinesis");

const client = new kinesis.KinesisClient({
  endpoint: process.argv[2],
  region: "us-east-1",
  credentials: { accessKeyId: "AKID", secretAccessKey: "secret" },
});
const call = (name, input) => client.send(new kinesis[`${name}Command`](input));

// Looks until the status is the one that is wanted.
async function wait(look, wanted) {
  for (let tries = 0; tries < 200; tries += 1) {
    if ((await look()) === wanted) return;
    await new Promise((resolve) => setTimeout(resolve, 100));
  }
  throw new Error(`not ${wanted} in time`);
}

async function main() {
  const StreamName = "node";
  await call("CreateStream", { StreamName, ShardCount: 1 });
  const summary = async () => (await call("DescribeStreamSummary", { StreamName })).StreamDescriptionSummary;
  await wait(async () => (await summary()).StreamStatus, "ACTIVE");
  const StreamARN = (await summary()).StreamARN;

  const one = new Uint8Array([0, 111, 255]);
  await call("PutRecord", { StreamName, PartitionKey: "k", Data: one });
  const Records = [0, 1, 2].map((n) => ({ PartitionKey: "k", Data: Buffer.from(`${n}`) }));
  assert.strictEqual((await call("PutRecords", { StreamName, Records })).FailedRecordCount, 0);

  const ShardId = (await call("ListShards", { StreamName })).Shards[0].ShardId;
  const start = { StreamName, ShardId, ShardIteratorType: "TRIM_HORIZON" };
  const { ShardIterator } = await call("GetShardIterator", start);
  const read = (await call("GetRecords", { ShardIterator })).Records;
  assert.deepStrictEqual([...read[0].Data], [...one]);
  assert(Math.abs(read[0].ApproximateArrivalTimestamp.getTime() - Date.now()) < 60000);

  const registered = await call("RegisterStreamConsumer", { StreamARN, ConsumerName: "app" });
  const { ConsumerARN } = registered.Consumer;
  const described = async () => (await call("DescribeStreamConsumer", { ConsumerARN })).ConsumerDescription;
  await wait(async () => (await described()).ConsumerStatus, "ACTIVE");
  const StartingPosition = { Type: "TRIM_HORIZON" };
  const subscription = await call("SubscribeToShard", { ConsumerARN, ShardId, StartingPosition });
  let [pushed, children, split] = [0, 0, false];
  for await (const message of subscription.EventStream) {
    const event = message.SubscribeToShardEvent;
    pushed += event.Records.length;
    children += event.ChildShards?.length ?? 0;
    if (pushed === read.length && !split) {
      split = true;
      const NewStartingHashKey = (2n ** 127n).toString();
      await call("SplitShard", { StreamName, ShardToSplit: ShardId, NewStartingHashKey });
    }
  }
  const shards = (await call("ListShards", { StreamName })).Shards;
  console.log(`read ${read.length} pushed ${pushed} children ${children} shards ${shards.length}`);
  client.destroy();
}

main().catch((error) => {
  console.error(error);
  process.exit(1);
});
