"""Drives a Kinesis endpoint with boto3's defaults: create, put, read, subscribe, reshard."""

import sys
import time

import boto3

client = boto3.client(
    "kinesis",
    endpoint_url=sys.argv[1],
    region_name="us-east-1",
    aws_access_key_id="AKID",
    aws_secret_access_key="secret",
)


def wait(look, wanted):
    """Looks until the status is the one that is wanted."""
    for _ in range(200):
        if look() == wanted:
            return
        time.sleep(0.1)
    raise SystemExit(f"not {wanted} in time")


def summary():
    return client.describe_stream_summary(StreamName="py")["StreamDescriptionSummary"]


client.create_stream(StreamName="py", ShardCount=1)
wait(lambda: summary()["StreamStatus"], "ACTIVE")
arn = summary()["StreamARN"]
assert summary()["StreamCreationTimestamp"].timestamp() > 1.7e9

client.put_record(StreamName="py", PartitionKey="k", Data=b"\x00one\xff")
entries = [{"PartitionKey": "k", "Data": f"{n}".encode()} for n in range(3)]
assert client.put_records(StreamName="py", Records=entries)["FailedRecordCount"] == 0

shard = client.list_shards(StreamName="py")["Shards"][0]["ShardId"]
iterator = client.get_shard_iterator(StreamName="py", ShardId=shard, ShardIteratorType="TRIM_HORIZON")
records = client.get_records(ShardIterator=iterator["ShardIterator"])["Records"]
assert records[0]["Data"] == b"\x00one\xff"
assert abs(records[0]["ApproximateArrivalTimestamp"].timestamp() - time.time()) < 60

consumer = client.register_stream_consumer(StreamARN=arn, ConsumerName="app")["Consumer"]["ConsumerARN"]
described = lambda: client.describe_stream_consumer(ConsumerARN=consumer)["ConsumerDescription"]
wait(lambda: described()["ConsumerStatus"], "ACTIVE")
stream = client.subscribe_to_shard(
    ConsumerARN=consumer, ShardId=shard, StartingPosition={"Type": "TRIM_HORIZON"}
)["EventStream"]
pushed, children, split = 0, 0, False
for event in stream:
    event = event["SubscribeToShardEvent"]
    pushed += len(event["Records"])
    children += len(event.get("ChildShards", []))
    if pushed == len(records) and not split:
        split = True
        client.split_shard(StreamName="py", ShardToSplit=shard, NewStartingHashKey=str(2**127))

shards = client.list_shards(StreamName="py")["Shards"]
print(f"read {len(records)} pushed {pushed} children {children} shards {len(shards)}")
