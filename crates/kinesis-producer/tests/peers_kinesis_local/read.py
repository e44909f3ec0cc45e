"""Reads a stream from its oldest record to its end and prints

shard, id, first hash key, last hash key                                  for each shard, then
record, shard, sequence number, partition key, md5 of the key, data in hex    for each record.

usage: read.py STREAM
"""

import hashlib
import os
import sys

import boto3


def main():
    stream = sys.argv[1]
    client = boto3.client(
        "kinesis",
        endpoint_url=os.environ["KINESIS_LOCAL_ENDPOINT"],
        region_name="us-east-1",
        aws_access_key_id="key",
        aws_secret_access_key="secret",
    )
    shards = client.list_shards(StreamName=stream)["Shards"]
    for shard in shards:
        keys = shard["HashKeyRange"]
        print("shard", shard["ShardId"], keys["StartingHashKey"], keys["EndingHashKey"], sep="\t")
    for shard in shards:
        iterator = client.get_shard_iterator(
            StreamName=stream, ShardId=shard["ShardId"], ShardIteratorType="TRIM_HORIZON"
        )["ShardIterator"]
        while iterator:
            page = client.get_records(ShardIterator=iterator)
            for record in page["Records"]:
                key = record["PartitionKey"]
                digest = int.from_bytes(hashlib.md5(key.encode()).digest(), "big")
                print("record", shard["ShardId"], record["SequenceNumber"], key, digest, record["Data"].hex(), sep="\t")
            at_the_tip = not page["Records"] and page["MillisBehindLatest"] == 0
            iterator = None if at_the_tip else page.get("NextShardIterator")


main()
